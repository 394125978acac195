"""What a run needs and what is free, in one sentence, with a way out."""

import pytest

from clozeworks.machine import doctor
from clozeworks.objectives.segments import Stream
from clozeworks.recipes import recipe
from clozeworks.train.pretrain import pretrain
from clozeworks.train.resources import memory_check
from clozeworks.train.resources.cost import measure_cost, measure_memory


@pytest.fixture
def free(monkeypatch):
    """Pretend that so many bytes are free, and that this process holds none."""

    def pretend(count: int | None) -> None:
        monkeypatch.setattr(doctor, "memory", lambda: (count, count))
        monkeypatch.setattr(memory_check, "held_bytes", lambda: 0)

    return pretend


def test_a_run_that_fits_says_so(free):
    free(21_400_000_000)
    need = measure_memory(recipe("bert_mini")).memory / 1e9
    assert memory_check.describe(recipe("bert_mini"), "cpu") == f"needs about {need:.1f} GB of memory; 21.4 GB are free"


def test_a_run_that_does_not_fit_says_what_would(free):
    r = recipe("bert_tiny")
    r.train.batch_tokens = 65_536
    whole = measure_memory(r).memory
    free(whole - 100_000_000)
    message = memory_check.describe(r, "cpu")
    assert message.startswith("memory is short: this needs about ")
    assert message.endswith("set train.micro_tokens=32768")
    free(measure_memory(recipe("bert_tiny")).memory)
    smaller = memory_check.advice(r, "cpu")
    assert smaller is not None
    assert smaller < 32_768
    r.train.micro_tokens = smaller
    assert memory_check.free_bytes(measure_memory(r), "cpu").fits


def test_a_model_that_never_fits_is_told_so(free):
    free(1_000_000)
    assert "take a smaller model" in memory_check.describe(recipe("bert_tiny"), "cpu")


def test_what_the_process_holds_already_is_not_asked_for_again(free, monkeypatch):
    cost = measure_memory(recipe("bert_tiny"))
    free(cost.memory // 2)
    assert not memory_check.free_bytes(cost, "cpu").fits
    monkeypatch.setattr(memory_check, "held_bytes", lambda: cost.memory // 2 + 1)
    assert memory_check.free_bytes(cost, "cpu").fits


def test_a_system_that_does_not_tell_is_no_error(free):
    free(None)
    assert memory_check.describe(recipe("bert_tiny"), "cpu").endswith("GB of memory")


def test_the_limit_of_a_container_counts(monkeypatch, tmp_path):
    files = {"memory.max": ["2000000000", "max"], "memory.current": ["1500000000", "9"],
             "memory.stat": ["anon 1\ninactive_file 700000000", "inactive_file 0"]}  # fmt: skip
    monkeypatch.setattr(doctor, "_cgroup", lambda name: files[name])
    assert doctor.memory() == (2_000_000_000, 1_200_000_000)


def test_pretraining_says_it_before_the_first_step(data, tiny, tmp_path):
    first = pretrain(tiny(2), [(data, 1.0)], tmp_path / "run", progress=False)
    assert any(note.startswith("needs about 0.") for note in first.notes)
    again = pretrain(tiny(2), [(data, 1.0)], tmp_path / "run", progress=False)
    assert not any("of memory" in note for note in again.notes)


def test_what_is_remembered_takes_room():
    results = []
    for memory in (0, 128, 512):
        r = recipe("gpt_mini")
        r.objective.segments, r.encoder.stack.memory = Stream(128, 32), memory
        results.append(measure_cost(r))
    assert results[0].memory < results[1].memory < results[2].memory
    assert results[0].arithmetic["model"] < results[1].arithmetic["model"] < results[2].arithmetic["model"]
