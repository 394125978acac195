"""Experiments behind pages of the documentation, each one command: python -m studies.NAME."""
