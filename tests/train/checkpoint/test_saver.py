"""Saving beside the training: what is written is the moment of the call, one at a time, and failures come back."""

import threading
import time
from pathlib import Path

import pytest
import torch

from clozeworks.core.errors import InputError
from clozeworks.exchange import checkpoint
from clozeworks.train.checkpoint.saver import Saver

WAIT = 30.0


class Slow:
    """A `before` that lets a save begin and holds it until it is released."""

    def __init__(self) -> None:
        self.begun, self.go = threading.Event(), threading.Event()

    def __call__(self) -> None:
        self.begun.set()
        assert self.go.wait(WAIT)


def tensors(value: float) -> dict[str, dict[str, torch.Tensor]]:
    return {checkpoint.MODEL: {"w": torch.full((4, 4), value)}, checkpoint.OPTIMIZER: {"w.step": torch.tensor(value)}}


def saved(run: Path) -> float:
    newest = checkpoint.newest(run)
    assert newest is not None
    assert float(newest.tensors(checkpoint.OPTIMIZER)["w.step"]) == float(newest.tensors()["w"][0, 0])
    return float(newest.tensors()["w"][0, 0])


def test_what_is_written_is_the_moment_of_the_call(tmp_path: Path):
    slow, live = Slow(), tensors(1.0)
    with Saver(tmp_path) as saver:
        saver.save(1, live, {}, {"recipe.json": b"{}"}, before=slow)
        assert slow.begun.wait(WAIT)
        for content in live.values():
            for tensor in content.values():
                tensor.fill_(99.0)
        assert saver.durable == 0
        assert checkpoint.newest(tmp_path) is None
        slow.go.set()
    assert saver.durable == 1
    assert saved(tmp_path) == 1.0
    assert (tmp_path / "step-00000001" / "recipe.json").read_bytes() == b"{}"


def test_the_next_waits_for_the_one_in_flight_and_takes_its_copies(tmp_path: Path):
    slow = Slow()
    with Saver(tmp_path) as saver:
        saver.save(1, tensors(1.0), {}, before=slow)
        places = {key: copy.data_ptr() for key, copy in saver._copies.items()}
        threading.Timer(0.2, slow.go.set).start()
        begin = time.perf_counter()
        saver.save(2, tensors(2.0), {}, keep=lambda steps: set())
        assert time.perf_counter() - begin > 0.1
        assert saver.durable >= 1
        assert {key: copy.data_ptr() for key, copy in saver._copies.items()} == places
    assert saved(tmp_path) == 2.0
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000002"]


def test_a_failure_comes_back_once_and_costs_nothing(tmp_path: Path):
    def fail() -> None:
        raise InputError("run", "the disk is full", "room is needed", "free some")

    with Saver(tmp_path) as saver:
        saver.save(1, tensors(1.0), {})
        saver.save(2, tensors(2.0), {}, before=fail)
        with pytest.raises(InputError, match="the disk is full"):
            while True:
                saver.check()
        saver.check()
        assert saver.durable == 1
    assert saved(tmp_path) == 1.0
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]
    with pytest.raises(InputError, match="the disk is full"), Saver(tmp_path) as saver:
        saver.save(3, tensors(3.0), {}, before=fail)


def test_an_error_of_the_training_waits_for_the_save_and_is_not_hidden_by_it(tmp_path: Path):
    slow = Slow()
    threading.Timer(0.2, slow.go.set).start()
    with pytest.raises(RuntimeError, match="training"), Saver(tmp_path) as saver:
        saver.save(1, tensors(1.0), {}, before=slow)
        raise RuntimeError("training")
    assert saved(tmp_path) == 1.0


def test_asked_twice_it_does_not_wait(tmp_path: Path):
    slow = Slow()
    with pytest.raises(KeyboardInterrupt), Saver(tmp_path) as saver:
        saver.save(1, tensors(1.0), {}, before=slow)
        raise KeyboardInterrupt
    assert checkpoint.newest(tmp_path) is None
    slow.go.set()
    saver.wait()
