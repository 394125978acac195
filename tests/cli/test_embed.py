"""Two-tower training, as its users go: rows of pairs in, an encoder out."""

import json
from pathlib import Path

import numpy as np
import pytest

import clozeworks as cw
from clozeworks.cli.main import main
from clozeworks.metrics.scores import spearman
from clozeworks.nn.pooling import Pooling
from tests.command_line import facts, override, refused
from tests.labelled import rows, write

pytestmark = pytest.mark.usefixtures("one_thread")
QUICK = ["--epochs", "4", "--batch-size", "8", "--max-length", "16", "--set", "train.learning_rate=3e-3"]


def pairs(count: int, seed: int, score: bool = True) -> list[dict]:
    """Texts of one kind are alike."""
    both = zip(rows(count, seed), rows(count, seed + 100), strict=True)
    records = [
        {"sentence1": a["text"], "sentence2": b["text"], "score": 4 * (a["label"] == b["label"]) + 1} for a, b in both
    ]
    if score:
        return records
    return [{"anchor": p["sentence1"], "positive": p["sentence2"]} for p in records if p["score"] > 2]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pairs")
    write(folder / "train.jsonl", pairs(48, 0))
    write(folder / "dev.jsonl", pairs(24, 1))
    write(folder / "together.jsonl", pairs(64, 2, score=False))
    return folder


def command(road: Path, files: Path, out: Path, *more: object, train: str = "train", dev: str = "dev") -> list[str]:
    words = ["finetune", "embed", "--model", road / "run", "--train", files / f"{train}.jsonl", "--out", out]
    return [*map(str, [*words, "--dev", files / f"{dev}.jsonl"]), *override(QUICK, *more)]


def test_scores_make_a_better_encoder(road: Path, files: Path, tmp_path: Path, capsys):
    words = command(road, files, tmp_path / "run", "--epochs", "8")
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "text_a = sentence1, text_b = sentence2, score = score" in out
    assert "embed: mean vectors of two texts, loss cosent" in out
    report = facts(capsys, *words)
    low, high = report["intervals"]["spearman"]
    assert low <= report["spearman"] <= high
    dev = pairs(24, 1)
    correlations = []
    for encoder in (cw.load(road / "run"), tuned := cw.load(tmp_path / "run")):
        a, b = (encoder.encode([row[name] for row in dev], normalise=True) for name in ("sentence1", "sentence2"))
        correlations.append(spearman([row["score"] for row in dev], (a * b).sum(1).tolist()))
    assert correlations[1] > correlations[0]
    assert correlations[1] == pytest.approx(report["spearman"], abs=1e-6)
    assert tuned.recipe.pooling == Pooling(length=16)
    shown = facts(capsys, "evaluate", tmp_path / "run", "--test", files / "dev.jsonl")
    assert shown["spearman"] == pytest.approx(report["spearman"])
    assert shown["worst"][0]["predicted"].startswith("cosine ")
    assert main(["predict", str(tmp_path / "run"), str(files / "dev.jsonl")]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines[0].keys() == {"sentence1", "sentence2", "score", "cosine"}
    for again in ("classify", "embed"):  # its vectors are still made so
        kept = [{**row, "text": row["sentence1"], "label": row["score"]} for row in dev]
        done = cw.finetune(again, tuned, kept, out=tmp_path / again, epochs=1, dev_share=0.0, progress=False)
        assert done.model.recipe.pooling == tuned.recipe.pooling


def test_pairs_that_belong_together_are_found_among_others(road: Path, files: Path, tmp_path: Path, capsys):
    report = facts(capsys, *command(road, files, tmp_path / "run", "--patience", "1", train="together", dev="together"))
    assert report["columns"] == {"text_a": "anchor", "text_b": "positive"}
    assert 0 < report["accuracy"] <= report["mrr"] <= 1
    measured = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    measured = [row for row in measured if row.get("split") == "heldout"]
    best = max(row["mrr"] for row in measured)
    assert report["mrr"] == pytest.approx(best)
    after = [row["mrr"] for row in measured].index(best) + 1
    assert len(measured) == 4 or len(measured) == after + 1  # one epoch without a better one is enough
    both = facts(capsys, *command(road, files, tmp_path / "both", train="together"))
    assert set(both["mean"]) >= {"spearman", "pearson"}  # chosen by what the rows to measure on have


def test_others_read_it(road: Path, files: Path, tmp_path: Path, capsys):
    facts(capsys, *command(road, files, tmp_path / "run", "--epochs", "1"))
    texts, own = ["the red fox", "a small old tree"], cw.load(tmp_path / "run")
    for to in ("sentence-transformers", "hf", "clozeworks"):
        out = tmp_path / to
        assert facts(capsys, "export", tmp_path / "run", "--to", to, "--out", out)["format"] == to
        again = cw.load(out)
        np.testing.assert_allclose(again.encode(texts, "mean"), own.encode(texts), atol=1e-6)
        assert (again.recipe.task is None) == (to != "clozeworks")
        assert "sentence-similarity" in (out / "README.md").read_text()
    assert cw.load(tmp_path / "sentence-transformers").recipe.pooling == Pooling(length=16)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--freeze"], "here the encoder is all there is"),
        (["--gradual-unfreezing"], "here the encoder is all there is"),
        (["--features", "sum"], "here the encoder is all there is"),
        (["--set", "task.loss=in_batch_negatives", "--set", "train.micro_tokens=64"], "compares the rows of a step"),
        (["--batch-size", "1"], "compares the rows of a step"),
        (["--set", "task.loss=cosin"], "cosine"),
        (["--set", "pooling.mode=max"], "change task.pooling instead"),
        (["--columns", "score=points"], "no column 'points'"),
    ],
)
def test_what_cannot_be_is_refused(road: Path, files: Path, tmp_path: Path, capsys, more, message):
    assert message in refused(capsys, *command(road, files, tmp_path / "run", *more))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([{"text_a": "a", "text_b": "b", "score": 1}], "1 row; a pair is learned from beside others"),
        ([{"text_a": "a", "text_b": "b", "score": 1}, {"text_a": "a", "text_b": "c"}], "line 2: nothing in column"),
        ([{"text_a": "a", "text_b": "b", "label": "yes"}] * 2, "line 1"),
        ([{"text_a": "a", "text_b": " ", "score": 1}] * 2, "line 1: an empty text in column 'text_b'"),
        ([{"text_a": "a", "score": 1}] * 2, "no column for text_b"),
        ([{"text_a": "a", "text_b": "b"}, {"text_a": "a", "text_b": "c"}], "the model learns from scores"),
    ],
)
def test_bad_rows_are_refused(road: Path, files: Path, tmp_path: Path, capsys, given, message):
    write(tmp_path / "bad.jsonl", given)
    words = command(road, files, tmp_path / "run")
    place = "--dev" if message.startswith("the model") else "--train"
    words[words.index(place) + 1] = str(tmp_path / "bad.jsonl")
    assert message in refused(capsys, *words)
    assert not (tmp_path / "run").exists()
