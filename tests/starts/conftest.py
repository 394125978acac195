"""The small corpus and recipes of tests/train."""

from tests.train.conftest import data, more_data, one_thread, tiny

__all__ = ["data", "more_data", "one_thread", "tiny"]
