"""Texts from texts by the commands: both forms, a second model for the decoder, figures and answers."""

import json
from pathlib import Path

import pytest

import clozeworks as cw
from clozeworks.cli.main import main
from clozeworks.tasks.seq2seq import Seq2Seq
from tests.command_line import facts, refused
from tests.labelled import write

pytestmark = pytest.mark.usefixtures("one_thread")
QUICK = ["--epochs", "1", "--batch-size", "8", "--max-length", "32", "--set", "task.target_length=8",
         "--set", "train.precision=fp32", "--set", "task.search.beams=2"]  # fmt: skip


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("written")
    words = ["the", "house", "is", "old", "and", "red"]
    texts = [" ".join(words[at:] + words[:at]) for at in range(6)]
    write(folder / "train.jsonl", [{"en": text, "de": text[:12].strip()} for text in texts * 4])
    write(folder / "dev.jsonl", [{"en": text, "de": text[:12].strip()} for text in texts])
    return folder


def command(road: Path, files: Path, out: Path, *more: object) -> list[str]:
    words = [
        "finetune",
        "seq2seq",
        "--model",
        road / "run",
        "--train",
        files / "train.jsonl",
        "--dev",
        files / "dev.jsonl",
    ]
    return [str(word) for word in [*words, "--columns", "source=en", "target=de", "--out", out, *QUICK, *more]]


@pytest.mark.parametrize("form", ["decoder", "prefix"])
def test_from_pairs_to_answers(road: Path, files: Path, tmp_path: Path, capsys, form: str):
    run = tmp_path / "run"
    report = facts(capsys, *command(road, files, run, "--architecture", form))
    names = {"bleu", "exact_match", "rouge1", "rouge2", "rougeL"}
    assert names <= set(report)
    assert names <= set(report["intervals"])
    note = "the decoder starts as the encoder, its cross-attention from fresh weights"
    assert (note in report["notes"]) == (form == "decoder")
    loaded = cw.load(run)
    assert isinstance(loaded.recipe.task, Seq2Seq)
    assert (loaded.recipe.decoder is not None) == (form == "decoder")
    words = ["evaluate", run, "--test", files / "dev.jsonl", "--columns", "source=en", "target=de"]
    again = facts(capsys, *words)
    assert again["bleu"] == pytest.approx(report["bleu"])
    assert again["worst"]
    assert main(["predict", str(run), str(files / "dev.jsonl"), "--columns", "source=en"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(rows) == 6
    assert {"en", "de", "text", "score"} <= set(rows[0])
    if form == "decoder":
        assert "laid out as its task says" in refused(capsys, "translate", run, "the house")
    message = refused(capsys, "export", run, "--to", "hf", "--out", tmp_path / "hf")
    assert "its own format" in message
    assert loaded.predict(["the house is old and red"])[0]["text"] == rows[0]["text"]


def test_another_model_for_the_decoder(road: Path, files: Path, tmp_path: Path, capsys):
    report = facts(
        capsys, *command(road, files, tmp_path / "run", "--decoder", road / "run", "--set", "task.share=true")
    )
    assert any("the decoder starts as bert_tiny" in note for note in report["notes"])
    decoder = cw.load(tmp_path / "run").recipe.decoder
    assert decoder is not None
    assert decoder.embed is None


def test_what_cannot_be_is_refused(road: Path, files: Path, tmp_path: Path, capsys):
    message = refused(
        capsys, *command(road, files, tmp_path / "run", "--architecture", "prefix", "--decoder", road / "run")
    )
    assert "one stack reads and writes there" in message
    words = ["finetune", "classify", "--model", road / "run", "--train", files / "train.jsonl", "--out", tmp_path / "x"]
    words += ["--dev", files / "dev.jsonl", "--columns", "text=en", "label=de"]
    message = refused(capsys, *words, "--architecture", "prefix")
    assert "it is about texts that are written" in message
    write(tmp_path / "empty.jsonl", [{"source": "a", "target": "b"}, {"source": "a", "target": " "}] * 4)
    words = [
        "finetune",
        "seq2seq",
        "--model",
        road / "run",
        "--train",
        tmp_path / "empty.jsonl",
        "--out",
        tmp_path / "x",
    ]
    assert "target" in refused(capsys, *words)
