"""Figures that are read off the file and the clock."""

from pathlib import Path

import pytest
import torch

from clozeworks.compress.division import Examples
from clozeworks.compress.measure import measure, measure_speed
from clozeworks.compress.quality import LossJudge, TaskJudge, VectorJudge, make_judge
from clozeworks.compress.start_up import start_up
from clozeworks.data.tables import read_table
from clozeworks.inference.text_encoder import load, save
from tests.labelled import rows

pytestmark = pytest.mark.usefixtures("one_thread")
TEXTS = [f"the {colour} {animal} {does}." for colour in ("red", "blue", "old", "small") for animal in
         ("fox", "dog", "hen", "cat") for does in ("runs", "sleeps", "eats")]  # fmt: skip


def spoilt(path: Path, size: float):
    encoder = load(path)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in encoder.model.parameters():
            parameter += size * torch.randn(parameter.shape, generator=generator)
    return encoder


def test_a_task_by_its_metric(tuned: Path):
    encoder = load(tuned)
    table = read_table(rows(80, 3), encoder.recipe.task.columns, encoder.recipe.task.truth).table
    judge = make_judge(encoder, Examples(table))
    assert isinstance(judge, TaskJudge)
    same = judge.judge(load(tuned))
    assert (same.metric, same.retained, same.difference) == ("accuracy", 1.0, (0.0, 0.0, 0.0))
    worse = judge.judge(spoilt(tuned, 1.0))
    assert worse.retained == pytest.approx(worse.value / worse.original)
    assert worse.difference.value == pytest.approx(worse.value - worse.original)
    assert worse.difference.low <= worse.difference.value <= worse.difference.high
    assert worse.value < same.value
    judge.metric = "f1"  # which is no share of right rows, and moves with them
    again = judge.judge(spoilt(tuned, 1.0))
    assert (again.metric, again.difference.value) == ("f1", pytest.approx(again.value - again.original))
    assert again.difference.low == pytest.approx(worse.difference.low, abs=0.15)


def test_an_encoder_by_its_vectors(road: Path):
    encoder = load(road / "run")
    judge = VectorJudge(encoder, TEXTS)
    same = judge.judge(load(road / "run"))
    assert same.value == pytest.approx(1.0)
    assert same.more["cosine_min"] == pytest.approx(1.0, abs=1e-6)
    near, far = judge.judge(spoilt(road / "run", 0.01)), judge.judge(spoilt(road / "run", 0.3))
    assert 1 > near.value > far.value
    assert near.difference.high <= 0
    assert far.more["cosine_low"] < far.more["cosine"] < far.more["cosine_high"] < near.more["cosine"]


def test_a_language_model_by_its_loss(road: Path):
    encoder = load(road / "run")
    judge = make_judge(encoder, Examples(texts=TEXTS * 4))
    assert isinstance(judge, LossJudge)
    assert judge.metric == "masked_lm"
    assert judge.judge(load(road / "run")).retained == pytest.approx(1.0)
    worse = judge.judge(spoilt(road / "run", 0.2))
    assert worse.value > worse.original
    assert worse.retained == pytest.approx(worse.original / worse.value)
    assert worse.difference.low > 0


def test_the_file_the_clock_and_a_fresh_process(tuned: Path, tmp_path: Path):
    encoder = load(tuned)
    table = read_table(rows(40, 3), encoder.recipe.task.columns, encoder.recipe.task.truth).table
    judge = TaskJudge(encoder, table)
    save(encoder, tmp_path / "model")
    work = judge.work()
    measured = measure(tmp_path / "model", load(tmp_path / "model"), encoder, judge, work, rounds=2)
    assert measured.bytes == (tmp_path / "model" / "model.safetensors").stat().st_size
    assert measured.parameters == sum(each.numel() for each in encoder.model.parameters())
    assert measured.bytes == pytest.approx(4 * measured.parameters, rel=0.1)
    assert measured.quality.retained == 1.0
    assert 0.2 < measured.speed.ratio < 5
    assert (measured.load_seconds or 0) > 0
    assert (measured.peak_memory_mb or 0) > (measured.model_memory_mb or 0) > 0
    assert work.tokens > 40
    assert set(work.short) == {"text"}


def test_a_slower_model_is_seen_to_be_slower(road: Path):
    encoder, slow = load(road / "run"), load(road / "run")
    work = VectorJudge(encoder, TEXTS).work()
    slow_forward = slow.model.encoder.forward

    def thrice(*words, **more):
        slow_forward(*words, **more)
        slow_forward(*words, **more)
        return slow_forward(*words, **more)

    slow.model.encoder.forward = thrice
    assert measure_speed(slow, encoder, work, rounds=3).ratio < 0.8
    assert torch.get_num_threads() >= 1


def test_a_child_that_fails_says_nothing(tmp_path: Path):
    assert start_up(tmp_path / "nothing", "a text") is None
