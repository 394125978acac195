"""Labelled rows of files and of Python objects, for every task."""

from clozeworks.data.tables.classes import Balance, balance
from clozeworks.data.tables.columns import columns_for
from clozeworks.data.tables.divide import fewer, fold_table, repeats, split_table
from clozeworks.data.tables.reader import Read, read_table, stream

__all__ = [
    "Balance",
    "Read",
    "balance",
    "columns_for",
    "fewer",
    "fold_table",
    "read_table",
    "repeats",
    "split_table",
    "stream",
]
