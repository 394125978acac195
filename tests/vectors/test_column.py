import numpy as np
import pytest

from clozeworks.vectors.column import PIECE, Column, pieces


@pytest.mark.parametrize("in_memory", [0, 30, 1 << 20])
def test_what_is_appended_comes_back(in_memory, tmp_path):
    column = Column(np.int32, tmp_path, in_memory)
    parts = [np.arange(n) for n in (3, 0, 5, 11)]
    for part in parts:
        column.append(part)
    result = column.array()
    assert result.dtype == np.int32
    assert np.array_equal(result, np.concatenate(parts))
    assert column.size == len(result) == 19
    assert isinstance(result, np.memmap) == (in_memory < 19 * 4)
    assert not list(tmp_path.iterdir())  # a file without a name


def test_the_file_outlives_the_column(tmp_path):
    column = Column(np.int64, tmp_path, 0)
    column.append(np.arange(1000))
    column = column.array()
    assert column.sum() == 499500


def test_nothing_at_all():
    assert len(Column(np.int32).array()) == 0


def test_pieces_cover_everything_once():
    result = list(pieces(2 * PIECE + 5))
    assert [(each.start, each.stop) for each in result] == [(0, PIECE), (PIECE, 2 * PIECE), (2 * PIECE, 2 * PIECE + 5)]
