"""The first two minutes."""

from clozeworks.quickstart.road import run

__all__ = ["run"]
