"""Both sides of the fine-tuning benchmark have the same model and rows. Speeds are nobody's test."""

import json

import pytest

import benchmarks
from benchmarks import tune
from clozeworks.core.errors import InputError


def test_a_first_look_is_shorter():
    quick, whole = tune.Setting.quick(), tune.Setting()
    assert set(quick.cells) < set(whole.cells) == set(tune.CELLS)
    assert quick.batch == whole.batch
    assert quick.steps * quick.repetitions < whole.steps * whole.repetitions


def test_an_unknown_cell_gets_a_suggestion():
    with pytest.raises(InputError, match="did you mean predict"):
        benchmarks.main("tune", cells=("predcit",))


@pytest.mark.slow
@pytest.mark.long
def test_the_two_are_measured_in_turns(capsys: pytest.CaptureFixture[str]):
    pytest.importorskip("accelerate")
    setting = tune.Setting(
        cells=("train", "predict"), recipe="bert_tiny", vocab=512, length=128, batch=8, steps=2, repetitions=2
    )
    results = tune.run(setting)
    losses = results["workload"]["losses"]
    assert losses["ours"] == pytest.approx(losses["theirs"], abs=tune.NEAR)
    assert tuple(results["cells"]) == setting.cells
    for name, cell in results["cells"].items():
        examples = 8 * (20 if name == "predict" else 2)
        assert [[row["tokens"] for row in side] for side in cell["segments"].values()] == [[examples] * 2] * 2, name
    json.dumps(results, allow_nan=False)
    from rich.console import Console

    Console().print(tune.render(results))
    assert "examples/s" in capsys.readouterr().out
