"""What the experiments have in common: they are told in one sentence what is wrong, and half a run is none."""

import signal
from pathlib import Path
from types import SimpleNamespace

import pytest

import clozeworks
from clozeworks.core.errors import InputError
from studies import script


def test_numbers_are_whole_and_large_enough():
    assert script.numbers("--seeds", "0, 7,12") == [0, 7, 12]
    for text in ("", "1,", "-1", "1.5"):
        with pytest.raises(InputError, match="whole numbers from 0 on"):
            script.numbers("--seeds", text)
    with pytest.raises(InputError, match="from 1 on"):
        script.numbers("--steps", "0", 1)


def test_a_run_that_was_stopped_ends_the_experiment(monkeypatch: pytest.MonkeyPatch):
    stopped = SimpleNamespace(finished=False, signal=int(signal.SIGTERM))
    monkeypatch.setattr(clozeworks, "pretrain", lambda *given, **more: stopped)
    with pytest.raises(SystemExit) as found:
        script.trained(None, Path("data"), Path("out"))
    assert found.value.code == 143


def test_figures_are_one_object_and_drawn_where_asked(capsys: pytest.CaptureFixture[str]):
    parser, drawn = script.Arguments("name", "about", "example", steps=9), []
    run = lambda seeds, steps: {"seeds": list(seeds), "steps": steps}  # noqa: E731
    assert script.answer(parser, [], run, lambda *given: drawn.append(given)) == 0
    assert (capsys.readouterr().out, drawn) == ('{"seeds": [0, 1, 2], "steps": 9}\n', [])
    assert script.answer(parser, ["--seeds", "4", "--plot", "a.png"], run, lambda *given: drawn.append(given)) == 0
    assert drawn == [({"seeds": [4], "steps": 9}, "a.png")]
    parser.add_argument("--train")
    own = lambda seeds, steps, train: {"train": train}  # noqa: E731
    assert script.answer(parser, ["--train", "pairs.jsonl"], own, lambda *given: None) == 0
    assert capsys.readouterr().out.endswith('{"train": "pairs.jsonl"}\n')
