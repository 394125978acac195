"""What the experiments have in common: they say in one sentence what is wrong, and half a run is none."""

import importlib
import inspect
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest

import clozeworks
from clozeworks.core.errors import InputError
from studies import study


def test_numbers_are_whole_and_large_enough():
    assert study.read_numbers("--seeds", "0, 7,12") == [0, 7, 12]
    for text in ("", "1,", "-1", "1.5"):
        with pytest.raises(InputError, match="whole numbers from 0 on"):
            study.read_numbers("--seeds", text)
    with pytest.raises(InputError, match="from 1 on"):
        study.read_numbers("--steps", "0", 1)


def test_a_run_that_was_stopped_ends_the_experiment(monkeypatch: pytest.MonkeyPatch):
    stopped = SimpleNamespace(finished=False, signal=int(signal.SIGTERM))
    monkeypatch.setattr(clozeworks, "pretrain", lambda *given, **more: stopped)
    with pytest.raises(SystemExit) as ended:
        study.pretrain(None, Path("data"), Path("out"))
    assert ended.value.code == 143


def test_results_are_one_object_and_drawn_where_asked(capsys: pytest.CaptureFixture[str]):
    drawn = []
    run = lambda seeds, steps: {"seeds": list(seeds), "steps": steps}  # noqa: E731
    draw = lambda *given: drawn.append(given)  # noqa: E731
    plain = study.Study("name", "about", "example", run, draw, steps=9)
    assert plain.main([]) == 0
    assert (capsys.readouterr().out, drawn) == ('{"seeds": [0, 1, 2], "steps": 9}\n', [])
    assert plain.main(["--seeds", "4", "--plot", "a.png"]) == 0
    assert drawn == [({"seeds": [4], "steps": 9}, "a.png")]
    own = lambda seeds, train: {"train": train}  # noqa: E731
    asks = study.Study("name", "about", "example", own, draw, options={"--train": {"required": True}})
    assert asks.main(["--train", "pairs.jsonl"]) == 0
    assert capsys.readouterr().out.endswith('{"train": "pairs.jsonl"}\n')
    assert asks.main([]) == 2
    assert "arguments as --help tells are needed" in capsys.readouterr().err


STUDIES = [
    *("alignment", "beside", "branches", "coherence", "copying", "independence", "kept", "senses", "spans", "starts"),
    *("windows", "worth"),
]


@pytest.mark.parametrize("name", STUDIES)
def test_every_option_is_one_that_the_study_takes(name: str):
    """An option whose name is not a parameter of `run` would end in a traceback."""
    each = importlib.import_module(f"studies.{name}").STUDY
    taken = set(inspect.signature(each.run).parameters)
    options = {action.dest for action in each.parser()._actions} - {"help", "plot"}
    assert options <= taken
    assert each.name == name
    assert f"python -m studies.{name}" in each.example


@pytest.mark.parametrize("name", STUDIES)
def test_no_study_imports_another(name: str):
    source = (Path(study.__file__).parent / f"{name}.py").read_text(encoding="utf-8")
    assert not {other for other in STUDIES if f"from studies.{other} import" in source}


def test_the_best_rate_is_that_of_the_first_seed():
    made = []

    def train(seed: int, rate: float) -> float:
        made.append((seed, rate))
        return seed + abs(rate - 2.0)

    every, tried = study.search_rate(train, lambda loss: loss, (5, 6, 7), (1.0, 2.0))
    assert every == [5.0, 6.0, 7.0]
    assert tried == {"1.0": 6.0, "2.0": 5.0}
    assert made == [(5, 1.0), (5, 2.0), (6, 2.0), (7, 2.0)]
