"""docs/api.md documents every public name."""

import re
from pathlib import Path

import pytest

import clozeworks
from clozeworks.train.finetune.plan import TASKS

PAGE = (Path(__file__).parents[2] / "docs" / "api.md").read_text()
DOCUMENTED = re.findall(r"^::: (\S+)$", PAGE, re.MULTILINE)


@pytest.mark.parametrize("name", clozeworks.__all__)
def test_public_name_is_documented(name):
    assert name in {path.split(".")[-1] for path in DOCUMENTED}
    assert f"cw.{name}`" in PAGE, "the table of what to use for what does not have it"


@pytest.mark.parametrize("task", TASKS.values())
def test_task_is_documented(task):
    assert f"{task.__module__}.{task.__name__}" in DOCUMENTED
