"""What a step of fine-tuning needs by the lengths of its rows, and into what pieces it is cut."""

import json
from pathlib import Path

import pytest

import clozeworks as cw
from clozeworks.inference.text_encoder import TextEncoder
from clozeworks.machine import doctor
from clozeworks.train.finetune import memory
from clozeworks.train.finetune.entry import finetune, plan
from clozeworks.train.finetune.forecast import forecast_finetuning
from clozeworks.train.finetune.options import FinetuneOptions
from clozeworks.train.finetune.plan import Plan
from clozeworks.train.resources import memory_check
from tests.labelled import rows


@pytest.fixture(scope="module")
def encoder(road: Path) -> TextEncoder:
    return cw.load(road / "run")


@pytest.fixture
def free(monkeypatch):
    """Pretend that so many bytes are free, that this process holds none, and that nothing is small."""

    def pretend(count: int | None) -> None:
        monkeypatch.setattr(doctor, "memory", lambda: (count, count))
        monkeypatch.setattr(memory_check, "held_bytes", lambda: 0)
        monkeypatch.setattr(memory, "PLAIN", 0.0)

    return pretend


def planned(encoder: TextEncoder, task: str = "classify", **more: object) -> Plan:
    given = [{**row, "text": " ".join([row["text"]] * 8)} for row in rows(64)]
    if task == "embed":
        given = [{"text_a": row["text"], "text_b": row["text"]} for row in given]
    options = FinetuneOptions(**{"max_length": 64, "epochs": 2, "batch_size": 32, **more})
    return plan(task, encoder, given, options=options)


def test_the_largest_step_is_one_of_the_steps(encoder: TextEncoder):
    made = planned(encoder)
    shape = memory.largest_step(made.examples, made.recipe)
    lengths = sorted(made.examples.lengths)
    assert shape.unit == shape.example == lengths[-1]
    assert sum(lengths[:32]) <= shape.tokens <= sum(lengths[-32:])


def test_a_step_that_fits_stays_whole(encoder: TextEncoder, free):
    made = planned(encoder)
    shape = memory.largest_step(made.examples, made.recipe)
    need = memory.measure_finetuning(made.recipe, shape).memory
    free(2 * need + 1)
    assert memory.choose_micro_tokens(made.recipe, made.examples, "cpu")[0].startswith("needs about ")
    assert made.recipe.train.micro_tokens is None
    free(None)
    assert memory.choose_micro_tokens(made.recipe, made.examples, "cpu") == []


def test_a_step_that_does_not_fit_is_cut(encoder: TextEncoder, free):
    made = planned(encoder)
    shape = memory.largest_step(made.examples, made.recipe)
    free(2 * memory.measure_finetuning(made.recipe, shape).memory - 1)
    [note] = memory.choose_micro_tokens(made.recipe, made.examples, "cpu")
    pieces = made.recipe.train.micro_tokens
    assert pieces is not None
    assert shape.unit <= pieces < shape.tokens
    assert f"gradient accumulation over pieces of {pieces:,} tokens" in note


def test_what_compares_the_rows_of_a_step_is_never_cut(encoder: TextEncoder, free):
    made = planned(encoder, "embed")
    free(1_000_000)
    [note] = memory.choose_micro_tokens(made.recipe, made.examples, "cpu")
    assert note.endswith("use a smaller --batch-size")
    assert made.recipe.train.micro_tokens is None


def test_a_run_is_resumed_as_it_was_begun(encoder: TextEncoder, free, tmp_path: Path):
    free(1_000_000)
    given = {"train": rows(16), "out": tmp_path / "run", "epochs": 1, "max_length": 16, "progress": False}
    first = finetune("classify", encoder, **given)
    assert any("gradient accumulation" in note for note in first.notes)
    stored = json.loads((tmp_path / "run" / "recipe.json").read_text())["train"]["micro_tokens"]
    assert stored < 100
    free(10**12)
    assert not any("memory" in note for note in finetune("classify", encoder, **given).notes)
    assert json.loads((tmp_path / "run" / "recipe.json").read_text())["train"]["micro_tokens"] == stored


def test_a_forecast_has_time_and_memory_for_all_seeds(encoder: TextEncoder):
    one, notes = forecast_finetuning(planned(encoder, dev_share=0.1))
    three, _ = forecast_finetuning(planned(encoder, seeds=3))
    assert notes == []
    assert three.tokens == 3 * one.tokens == 3 * 2 * planned(encoder, dev_share=0.1).examples.lengths.sum()
    assert one.seconds > 0
    assert one.memory_bytes == three.memory_bytes > 4 * one.parameters
    frozen, _ = forecast_finetuning(planned(encoder, freeze=True))
    assert frozen.memory_bytes < one.memory_bytes
