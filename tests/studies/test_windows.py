"""Windows that grow, stay alike or shrink are trained alike but for what is compared."""

import json
from pathlib import Path

import pytest

from clozeworks.core.spec import check, diff
from clozeworks.recipe import count_parameters
from studies import windows
from studies.windows import LEFT, recipe_for


def test_they_differ_in_the_windows_alone():
    first = recipe_for("growing", 3, 40)
    for kind in LEFT:
        r = recipe_for(kind, 3, 40)
        check(r, r.name)
        assert sum(LEFT[kind]) == 128
        assert count_parameters(r) == count_parameters(first)
        assert [r.encoder.stack.block_at(layer).mixer.window.left for layer in range(4)] == list(LEFT[kind])
        assert all(path == "name" or ".mixer.window" in path for path in diff(first, r))
    upper = recipe_for("dilated", 0, 1).encoder.stack.block_at(3).mixer.window
    assert upper.dilation == (1, 1, 2, 2)


def test_figures_and_plot(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    for name, value in (("LENGTH", 32), ("ROWS", 2), ("WIDTH", 16)):
        monkeypatch.setattr(windows, name, value)
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(f"The {number} foxes sleep under the old tree." for number in range(200)))
    words = ["--text", str(text), "--seeds", "0,1", "--steps", "3", "--plot", str(tmp_path / "windows.svg")]
    assert windows.main(words) == 0
    report = json.loads(capsys.readouterr().out)
    assert set(report["bits"]) == set(LEFT)
    assert all(0 < bits < 10 for each in report["bits"].values() for bits in each)
    less = [a - b for a, b in zip(report["bits"]["alike"], report["bits"]["growing"], strict=True)]
    assert report["bits_more_than_growing"]["alike"][0] == pytest.approx(sum(less) / 2, abs=1e-3)
    assert (tmp_path / "windows.svg").stat().st_size > 2000


def test_a_text_that_is_not_there(capsys: pytest.CaptureFixture[str]):
    assert windows.main(["--text", "nowhere.txt"]) == 2
    assert "a text file is needed" in capsys.readouterr().err
