"""Runs that are refused before anything is written."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from clozeworks.core import spec
from clozeworks.core.errors import InputError, RecipeError
from clozeworks.optim.settings import Phase
from clozeworks.recipe import Recipe
from clozeworks.recipes import recipe as recipe_named
from clozeworks.train.pretrain import pretrain

Tiny = Callable[..., Recipe]


def test_corpora_of_two_tokenizers_are_refused(data: Path, foreign_data: Path, tiny: Tiny, tmp_path: Path):
    with pytest.raises(InputError, match=r"another tokenizer than.*--tokenizer"):
        pretrain(tiny(), [(data, 0.5), (foreign_data, 0.5)], tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_directory_of_something_else_is_left_alone(data: Path, tiny: Tiny, tmp_path: Path):
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(InputError, match=r"holds thesis.txt but is no run"):
        pretrain(tiny(), [(data, 1.0)], tmp_path, progress=False)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_several_processes_are_refused_before_anything_is_written(data: Path, tiny: Tiny, tmp_path: Path):
    with pytest.raises(RecipeError, match=r"bert_tiny.train.processes = 2"):
        pretrain(tiny(processes=2), [(data, 1.0)], tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_every_phase_is_tried_on_the_text_before_anything_is_written(data: Path, tiny: Tiny, tmp_path: Path):
    streams = tiny(phases=(Phase(0.5, 32), Phase(0.5, 64)), batch_tokens=7 * 32)
    streams.objective = recipe_named("roberta_mini").objective
    spec.set_path(streams, "objective.segments", "Stream(length=32, streams=7)")
    with pytest.raises(InputError, match="a step holds rows of 64 tokens of all 7 streams"):
        pretrain(streams, [(data, 1.0)], tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_too_little_room_for_a_checkpoint_leaves_nothing(data: Path, tiny: Tiny, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(9, 9, 9))  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(InputError, match="0 MB are free; a checkpoint takes"):
        pretrain(tiny(), [(data, 1.0)], tmp_path / "deep" / "run")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("out", [None, 5])
def test_a_run_needs_a_path(out, data: Path, tiny: Tiny):
    with pytest.raises(InputError, match=f"^out: {out}; the directory of the run is needed"):
        pretrain(tiny(), [(data, 1.0)], out)


def test_a_record_of_the_run_that_changed_is_refused(data: Path, tiny: Tiny, tmp_path: Path):
    pretrain(tiny(2), [(data, 1.0)], tmp_path / "run", progress=False)
    record = tmp_path / "run" / "run.json"
    record.write_text(record.read_text().replace('"precision": "fp32"', '"precision": "bf16"'))
    with pytest.raises(InputError, match=r"run\.json: other content than when it was written"):
        pretrain(tiny(2), [(data, 1.0)], tmp_path / "run", progress=False)
