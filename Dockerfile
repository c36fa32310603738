# The viewer only: it opens snapshots read-only and needs neither torch nor vLLM.
#   docker build -t sounding-viewer .
#   docker run --rm -p 8501:8501 -v /path/to/data/local:/results:ro sounding-viewer
# Mount the data DIRECTORY, not results.duckdb: a file mount pins the inode and would never show a new snapshot.
# Without a mount it shows the sweeps that come with the project. There is no login: whoever reaches the port reads.
ARG BASE=python:3.11-slim-bookworm
FROM ${BASE}

WORKDIR /app
COPY requirements.txt ./
RUN python3 -m venv /opt/venv && /opt/venv/bin/pip install --no-cache-dir --disable-pip-version-check -r requirements.txt

COPY app.py explorer.py ./
COPY .streamlit/ .streamlit/
COPY backend/ backend/
COPY pages/ pages/
COPY data/published/ data/published/
COPY data/demo/ data/demo/
RUN mkdir /results

ENV PATH=/opt/venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    HOME=/tmp \
    SOUNDING_DATA=/results
USER 10001:10001
EXPOSE 8501
# Unknown paths answer 200 too, so the body is compared.
HEALTHCHECK --interval=10s --timeout=5s --start-period=15s --retries=3 \
    CMD ["/opt/venv/bin/python", "-c", "import sys, urllib.request as u; sys.exit(u.urlopen('http://127.0.0.1:8501/_stcore/health', timeout=4).read() != b'ok')"]
CMD ["streamlit", "run", "app.py", "--server.port=8501"]
