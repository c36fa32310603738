"""`python -m backend`: see `backend/cli.py`."""

from backend.cli import main

if __name__ == "__main__":
    main()
