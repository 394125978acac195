"""docs/architecture.md is what its generator writes, and what it names exists."""

import ast
from pathlib import Path

import pytest

from docs.tools import architecture, trace

ROOT = Path(__file__).parents[2]


def test_page_is_written_by_its_generator():
    assert architecture.PAGE.read_text() == architecture.page(), "run `python -m docs.tools.architecture`"


@pytest.mark.parametrize(
    "file", sorted({*architecture.READING_ORDER, *(file for files in architecture.CHANGES.values() for file in files)})
)
def test_files_that_the_page_names_exist(file):
    path = ROOT / architecture.PACKAGE / file
    assert path.is_file()
    assert ast.get_docstring(ast.parse(path.read_text())), f"{file} does not say what it is"


def test_a_change_takes_two_files_to_understand_at_most():
    assert len(architecture.READING_ORDER) == 10
    assert all(1 <= len(files) <= 2 for files in architecture.CHANGES.values())


def test_trace_counts_functions_and_not_imports(tmp_path):
    noted = trace.trace_command(["recipes"])
    assert "cli/recipes.py" in noted.files
    assert "train/loop.py" not in noted.files
    assert not noted.stack
