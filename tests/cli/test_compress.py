"""Compression as its users type it."""

from pathlib import Path

import pytest

from clozeworks.cli.main import main
from clozeworks.compress import measure, target
from tests.command_line import facts, refused
from tests.labelled import rows, write

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(measure, "SECONDS", 0.001)
    return write(tmp_path / "dev.jsonl", rows(240, 3))


def test_steps_as_a_table_and_as_json(tuned: Path, data: Path, tmp_path: Path, capsys):
    plot, small = tmp_path / "small.png", tmp_path / "small"
    words = ["compress", tuned, "--data", data, "--apply", "ffn=0.5", "--out", small, "--plot", plot]
    assert main([*map(str, words)]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in ("smaller", "tokens/s", "load s", "RAM MB", "95 % paired interval", "CPU s"))
    table = [line for line in out.splitlines() if line.startswith(("step ", "original ", "ffn=0.5 "))]
    assert len(table) == 6
    assert max(map(len, table)) <= 80
    assert f"evaluate {small} --test {data} --against {tuned}" in out
    assert plot.read_bytes().startswith(b"\x89PNG")
    report = facts(capsys, "compress", tuned, "--data", data, "--apply", "ffn=0.5", "--out", tmp_path / "again")
    assert report["steps"] == ["ffn=0.5"]
    assert report["smaller"] > 1
    assert report["load_seconds"] > 0
    assert report["peak_memory_mb"] > 50
    assert 0 <= report["accuracy"] <= 1
    both = facts(capsys, "evaluate", small, "--test", data, "--against", tuned)
    assert both["differences"]["accuracy"]["low"] <= both["differences"]["accuracy"]["value"]


def test_a_target_that_is_missed_ends_with_1_and_a_sentence(
    tuned: Path, data: Path, tmp_path: Path, capsys, monkeypatch
):
    monkeypatch.setattr(target, "PASSES", 1)
    monkeypatch.setattr(measure, "start_up", lambda directory, short: None)
    words = ["compress", tuned, "--data", data, "--target", "size=1KB", "--out", tmp_path / "small"]
    assert main([*map(str, words)]) == 1
    out = capsys.readouterr().out
    assert "not reached; what came nearest is written" in out
    assert "tried" in out
    assert (tmp_path / "small" / "compress.json").is_file()


def test_rivals_are_rows_with_intervals(tuned: Path, data: Path, tmp_path: Path, capsys, monkeypatch):
    monkeypatch.setattr(measure, "start_up", lambda directory, short: None)
    words = ["compress", tuned, "--data", data, "--apply", "ffn=0.5,distil=3", "--rival", "--out"]
    assert main([*map(str, words), str(tmp_path / "small")]) == 0
    out = capsys.readouterr().out
    lines = [line for line in out.splitlines() if line.startswith("rival: ")]
    assert len(lines) == 6, "each in the table of costs, in that of quality, and against the compressed model"
    assert max(map(len, lines)) <= 80
    assert "against the compressed model: trained as long (distil=3) without the original" in out
    report = facts(capsys, *words, tmp_path / "again")
    assert report["steps"] == ["ffn=0.5", "distil=3"]
    assert [row["step"] for row in report["rivals"]] == ["rival: fresh", "rival: untaught"]
    assert all(row["against_compressed"].keys() == {"value", "low", "high"} for row in report["rivals"])
    refused(capsys, "the chain trains nothing", *words[:5], "ffn=0.5", *words[6:], tmp_path / "none")


def test_a_dry_run_lists_steps(tuned: Path, data: Path, capsys):
    report = facts(capsys, "compress", tuned, "--data", data, "--dry-run")
    assert {"heads", "ffn", "layers", "vocab"} <= report["steps"].keys() | report["refused"].keys()
    assert all(size < report["bytes"] for name, size in report["steps"].items() if name in ("ffn", "heads"))
    assert main(["compress", str(tuned), "--data", str(data), "--dry-run"]) == 0
    assert "MB of weights" in capsys.readouterr().out


def test_mistakes_are_one_sentence(tuned: Path, data: Path, road: Path, tmp_path: Path, capsys):
    def compress(*words: object, given: Path = data) -> str:
        message = refused(capsys, "compress", tuned, "--data", given, "--out", tmp_path / "small", *words)
        assert not (tmp_path / "small").exists()
        return message

    assert "did you mean heads" in compress("--apply", "head=0.3")
    assert "--apply" in compress("--apply", "heads=2")
    assert "neither --apply nor --target" in compress()
    assert "both --apply and --target" in compress("--apply", "ffn", "--target", "speed=2x")
    assert "asked for twice" in compress("--target", "size=1MB,size=2MB")
    assert "1 at most" in compress("--target", "quality=2")
    assert "already" in compress("--target", "size=1GB")
    assert "parts of 10 are needed" in compress("--apply", "ffn", given=write(tmp_path / "one.jsonl", rows(1)))
    assert "labelled rows show" in compress("--apply", "ffn", given=road / "data")
    assert "the ending chooses" in compress("--apply", "ffn", "--plot", "picture.txt")
    assert "no --out" in refused(capsys, "compress", tuned, "--data", data, "--apply", "ffn")
