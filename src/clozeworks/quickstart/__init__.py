"""The first two minutes."""

from clozeworks.quickstart.pipeline import run

__all__ = ["run"]
