"""The names of tasks, which help pages read without torch, are those of the tasks themselves."""

import pytest

from clozeworks.core.errors import InputError
from clozeworks.tasks.names import TASKS
from clozeworks.tasks.task import find_task, list_tasks


def test_every_task_of_the_library_is_named():
    own = {name for name, kind in list_tasks().items() if kind.__module__.startswith("clozeworks.")}
    assert own == set(TASKS)


def test_what_people_call_a_task_is_answered_with_its_name():
    with pytest.raises(InputError, match=r"did you mean tag\?"):
        find_task("ner")
    others = [other for names in TASKS.values() for other in names]
    assert len(others) == len(set(others))
    assert not set(others) & set(TASKS)
