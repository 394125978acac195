"""docs/api.md documents every public name."""

import re
from pathlib import Path

import pytest

import clozeworks
from clozeworks.tasks.task import list_tasks

PAGE = (Path(__file__).parents[2] / "docs" / "api.md").read_text()
DOCUMENTED = re.findall(r"^::: (\S+)$", PAGE, re.MULTILINE)


@pytest.mark.parametrize("name", clozeworks.__all__)
def test_public_name_is_documented(name):
    assert name in {path.split(".")[-1] for path in DOCUMENTED}
    assert f"cw.{name}`" in PAGE, "the table of what to use for what does not have it"


@pytest.mark.parametrize("task", [task for task in list_tasks().values() if task.__module__.startswith("clozeworks.")])
def test_task_is_documented(task):
    assert f"{task.__module__}.{task.__name__}" in DOCUMENTED
