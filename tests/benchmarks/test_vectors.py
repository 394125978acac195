"""The same sentences on all sides, ratios of seeds, quality by file; the figures are nobody's test."""

import json

import numpy as np
import pytest

from benchmarks import vectors
from benchmarks.__main__ import main
from clozeworks.core.errors import InputError


def row(speed, memory, quality):
    return {
        "words_per_second": speed,
        "words_per_cpu_second": speed / 2,
        "seconds_reading": 1.0,
        "above_bare_mb": memory,
        "peak_anonymous_mb": memory,
        "quality": {"pairs": quality},
    }


def test_ratios_are_of_seeds_and_quality_has_a_deviation():
    result = vectors.summary(
        {
            "ours": [row(400.0, 10.0, 0.5), row(600.0, 10.0, 0.7)],
            "lists": [row(200.0, 20.0, 0.4), row(200.0, 20.0, 0.4)],
            "file": [row(300.0, None, 0.6), row(300.0, 5.0, 0.6)],
        }
    )
    assert result["ratio"]["lists"]["words_per_second"] == {"median": 2.5, "lowest": 2.0, "highest": 3.0}
    assert result["ratio"]["lists"]["above_bare_mb"]["median"] == 0.5
    assert "above_bare_mb" not in result["ratio"]["file"]
    assert result["sides"]["ours"]["quality"] == {"pairs": {"mean": 0.6, "deviation": 0.1414}}
    assert result["sides"]["file"]["above_bare_mb"] is None


def test_what_it_cannot_do_is_reported(capsys, monkeypatch, tmp_path):
    with pytest.raises(InputError, match="a cell of this benchmark"):
        vectors.run(vectors.Setting(cells=("glove",)))
    with pytest.raises(InputError, match="--judge"):
        vectors.run(vectors.Setting(judge=(str(tmp_path / "absent"),)))
    assert main(["loader", "--judge", "x"]) == 2
    assert "loader has no scored words" in capsys.readouterr().err
    monkeypatch.setitem(__import__("sys").modules, "gensim", None)
    with pytest.raises(InputError, match="pip install gensim"):
        vectors.need_peer()


@pytest.mark.slow
def test_a_small_run_tells_all(tmp_path):
    pytest.importorskip("gensim")
    rng = np.random.default_rng(0)
    words = [f"w{n}" for n in range(40)]
    text = tmp_path / "text.txt"
    text.write_text("\n".join(" ".join(rng.choice(words, 12)) for _ in range(400)))
    (tmp_path / "pairs.txt").write_text("w1 w2 3\nw3 w4 5\nw5 w6 1\nw7 w8 2\n")
    (tmp_path / "questions.txt").write_text(": some\nw1 w2 w3 w4\nw5 w6 w7 w8\n")
    judge = (str(tmp_path / "pairs.txt"), str(tmp_path / "questions.txt"))
    setting = vectors.Setting(
        cells=("skipgram", "cbow-tree"), data=str(text), judge=judge, dim=8, epochs=1, workers=1, repetitions=1
    )
    results = json.loads(json.dumps(vectors.run(setting), allow_nan=False))
    assert results["workload"]["words"] == 4800
    assert results["workload"]["vocabulary"] == 40
    for cell in results["cells"].values():
        assert set(cell["sides"]) == {"ours", "lists", "file"}
        for side in cell["sides"].values():
            assert side["words_per_second"] > 0
            assert set(side["quality"]) == {"pairs", "questions"}
        assert cell["ratio"]["file"]["words_per_second"]["median"] > 0
    from rich.console import Console

    console = Console(width=200, record=True, file=(tmp_path / "shown").open("w"))
    console.print(vectors.render(results))
    shown = console.export_text()
    console.file.close()
    assert "skipgram, clozeworks" in shown
    assert "cbow-tree, file" in shown.split("by gensim")[1]
    assert "cbow-tree, pairs" in shown.split("quality")[1]
