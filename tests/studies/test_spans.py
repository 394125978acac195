"""A fixed span and learned ones are trained alike but for what is compared, and reported with what they cost."""

import json
from pathlib import Path

import pytest

from clozeworks.core.spec import check
from clozeworks.nn.bias.adaptive_span import AdaptiveSpan
from clozeworks.recipe import count_parameters
from studies import spans
from studies.spans import PRICES, recipe_for


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Two prices, one layer, short rows."""
    for name, value in (("LENGTH", 32), ("STREAMS", 2), ("LIMIT", 64), ("RAMP", 16), ("DEPTH", 1), ("WIDTH", 16)):
        monkeypatch.setattr(spans, name, value)
    monkeypatch.setattr(spans, "PRICES", {"fixed": None, "1e-4": 1e-4})
    text = tmp_path / "text.txt"
    text.write_text(
        "\n\n".join(f"The {number} foxes sleep under the old tree near the river." for number in range(300))
    )
    return text


def test_they_differ_in_the_span_alone():
    recipes = {price: recipe_for(price, 3, 40) for price in PRICES}
    for price, r in recipes.items():
        check(r, r.name)
        assert r.train == recipes["fixed"].train
        bias = r.encoder.stack.block_at(0).mixer.bias
        if price == "fixed":
            continue
        assert isinstance(bias, AdaptiveSpan)
        assert bias.bias == recipes["fixed"].encoder.stack.block_at(0).mixer.bias
        assert count_parameters(r) == count_parameters(recipes["fixed"]) + spans.DEPTH * spans.HEADS
        assert r.objective.losses[1].weight == PRICES[price]


def test_figures_and_plot(small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    words = ["--text", str(small), "--seeds", "0", "--steps", "4", "--plot", str(tmp_path / "spans.svg")]
    assert spans.main(words) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["metrics"]["fixed"]["span"] == [64]
    assert 16 <= report["metrics"]["1e-4"]["span"][0] < 64
    assert set(report["bits_more_than_fixed"]) == {"1e-4"}
    assert len(report["spans_of_the_first_seed"]["1e-4"][0]) == 4
    for each in report["metrics"].values():
        assert 0 < each["bits"][0] < 10
        assert each["seconds"][0] > 0
    assert (tmp_path / "spans.svg").stat().st_size > 2000


def test_a_text_that_is_not_there(capsys: pytest.CaptureFixture[str]):
    assert spans.main(["--text", "nowhere.txt"]) == 2
    assert "a text file is needed" in capsys.readouterr().err
