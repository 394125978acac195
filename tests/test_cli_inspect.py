"""clozeworks inspect layers"""

import pytest

from clozeworks.cli import main
from tests.cli import facts, refused

pytestmark = pytest.mark.usefixtures("one_thread")


def test_layers_of_a_run_and_of_a_directory_of_others(road, capsys):
    found = facts(capsys, "inspect", "layers", road / "run", road / "hf", "--data", road / "data")["models"]
    assert [each["model"] for each in found] == [str(road / "run"), str(road / "hf")]
    ours, theirs = found
    assert [row["layer"] for row in ours["layers"]] == [1, 2]
    assert ours["tokens"] > 100
    for row in ours["layers"]:
        assert row["distance"] > 0
        assert -1 <= row["cosine"] <= 1
    for name in ("distance", "cosine"):  # the same weights, read as rows of another length
        mine, other = ([row[name] for row in each["layers"]] for each in (ours, theirs))
        assert other == pytest.approx(mine, rel=0.2)
    assert set(ours["deviation"]) == {"distance", "cosine"}


def test_layers_as_a_chart_and_as_a_plot(road, tmp_path, capsys):
    words = ["inspect", "layers", str(road / "run"), "--data", str(road / "data")]
    assert main(words) == 0
    told = capsys.readouterr().out
    assert "tokens of the held-out text" in " ".join(told.split())
    assert "deviation" in told
    assert told.count("█") + told.count("#") > 20
    for ending in ("svg", "png"):
        assert main([*words, "--out", str(tmp_path / f"layers.{ending}")]) == 0
        assert (tmp_path / f"layers.{ending}").stat().st_size > 2000
    assert main([*words, "--out", str(tmp_path / "again.svg")]) == 0
    assert (tmp_path / "again.svg").read_bytes() == (tmp_path / "layers.svg").read_bytes()


def test_mistakes(road, tmp_path, capsys):
    run, data = road / "run", road / "data"
    assert "one of layers is needed; did you mean layers" in refused(capsys, "inspect", "layer", run, "--data", data)
    assert "no such path" in refused(capsys, "inspect", "layers", road / "rnu", "--data", data)
    assert "the ending chooses the format" in refused(
        capsys, "inspect", "layers", run, "--data", data, "--out", tmp_path / "x.gif"
    )
    assert "no --data" in refused(capsys, "inspect", "layers", run)
    assert main(["prepare", str(road / "more.txt"), "--out", str(tmp_path / "other"), "--vocab", "90"]) == 0
    assert "another tokenizer" in refused(capsys, "inspect", "layers", run, "--data", tmp_path / "other")
