"""The road from pairs of sentences to translations, as its users walk it."""

import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import sacrebleu
import torch

import clozeworks
from clozeworks.cli.main import main
from clozeworks.data.shards.corpus import Corpus
from clozeworks.evaluate.pair_text import PairText
from tests.command_line import facts, refused
from tests.pairs import pairs, settings, write_json, write_table

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """pairs.jsonl, test.jsonl, data and a run that has learnt most of its words."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("pairs")
    write_json(folder / "pairs.jsonl", pairs(500))
    write_json(folder / "test.jsonl", pairs(40, seed=1))
    prepare = ["prepare", f"{folder}/pairs.jsonl", "--pairs", "en,de", "--out", f"{folder}/data"]
    assert main([*prepare, "--vocab", "120", "--heldout", "0.1"]) == 0
    train = ["pretrain", "transformer_mini", "--data", f"{folder}/data", "--out", f"{folder}/run"]
    assert main([*train, *settings(train_steps=120)]) == 0
    return folder


def test_it_translates_what_it_has_learnt(walked: Path, capsys: pytest.CaptureFixture[str]):
    report = facts(capsys, "translate", walked / "run", "the red fox runs.", "a cat.")
    assert [one["text"] for one in report["translations"]] == ["das rot fuchs rennt!", "ein katze!"]
    assert [one["source"] for one in report["translations"]] == ["the red fox runs.", "a cat."]
    assert all(one["score"] < 0 and one["cut"] == 0 for one in report["translations"])
    assert main(["translate", f"{walked}/run", "the red fox runs."]) == 0
    out = capsys.readouterr().out
    assert out.startswith("das rot fuchs rennt!\n")
    assert "next   clozeworks evaluate" in out


def test_a_file_is_translated_line_by_line(
    walked: Path, capsys: pytest.CaptureFixture[str], monkeypatch, tmp_path: Path
):
    sources = [a for a, _ in pairs(12, seed=3)]
    lines = [*sources[:5], "", *sources[5:]]
    (tmp_path / "in.txt").write_text("\n".join(lines) + "\n")
    out = tmp_path / "out.txt"
    report = facts(capsys, "translate", walked / "run", "--file", tmp_path / "in.txt", "--out", out)
    written = out.read_text().splitlines()
    assert written == [one["text"] for one in report["translations"]]
    assert len(written) == 13
    assert written[5] == ""
    alone = clozeworks.load(walked / "run")
    assert written == [alone.translate([line])[0] for line in lines]  # nobody's neighbours matter
    assert written == alone.translate(lines)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a cat.\n")))
    assert facts(capsys, "translate", walked / "run", "--file", "-")["translations"][0]["text"] == "ein katze!"


def test_a_test_file_gives_the_score_that_sacrebleu_gives(walked: Path, capsys: pytest.CaptureFixture[str]):
    report = facts(capsys, "evaluate", walked / "run", "--test", walked / "test.jsonl")
    rows = [json.loads(line) for line in (walked / "test.jsonl").read_text().splitlines()]
    translations = clozeworks.load(walked / "run").translate([row["en"] for row in rows])
    wanted = sacrebleu.corpus_bleu(translations, [[row["de"] for row in rows]], lowercase=True)
    assert report["bleu"] == pytest.approx(wanted.score, abs=1e-9)
    assert report["bleu"] > 50
    assert "case:lc" in report["bleu_signature"]
    assert "tok:13a" in report["bleu_signature"]
    assert report["pairs"] == "en,de"
    assert report["translated"] == 40
    assert report["perplexity"] == pytest.approx(np.exp(report["loss"]))
    assert 0.5 < report["accuracy"] <= 1
    greedy = facts(capsys, "evaluate", walked / "run", "--test", walked / "test.jsonl", "--beams", 1)
    assert greedy["loss"] == report["loss"]


def test_a_table_scores_as_the_same_json_does(walked: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path):
    wanted = facts(capsys, "evaluate", walked / "run", "--test", walked / "test.jsonl", "--beams", 1)
    for header, fields in ((True, "en,de"), (False, "1,2")):
        table = write_table(tmp_path / f"{header}.tsv", pairs(40, seed=1), header)
        report = facts(capsys, "evaluate", walked / "run", "--test", table, "--pairs", fields, "--beams", 1)
        assert {**report, "test": "", "pairs": ""} == {**wanted, "test": "", "pairs": ""}


def test_held_out_pairs_of_prepared_text_are_scored(walked: Path, capsys: pytest.CaptureFixture[str]):
    report = facts(capsys, "evaluate", walked / "run", "--data", walked / "data", "--beams", 1)
    assert report["split"] == "heldout"
    assert report["translated"] == len(Corpus.open(walked / "data", "heldout").documents) - 1
    assert report["bleu"] > 50
    assert report["loss"] < 1 < report["unigram_loss"] < np.log(40)
    assert main(["evaluate", f"{walked}/run", "--data", f"{walked}/data", "--beams", "1"]) == 0
    out = capsys.readouterr().out
    for part in ("BLEU", "nrefs:1|case:lc", "source", "written", "reference", "next   clozeworks translate"):
        assert part in out


def test_pairs_in_memory_are_the_prepared_ones(walked: Path):
    text = PairText(clozeworks.load(walked / "run").tokenizer, pairs(500))
    counted = sum(len(Corpus.open(walked / "data", split).documents) - 1 for split in ("train", "heldout"))
    tokens = sum(int(Corpus.open(walked / "data", split).sentences[-1]) for split in ("train", "heldout"))
    assert len(text.documents) - 1 == counted
    assert int(text.sentences[-1]) == tokens


def test_both_sides_are_shown_before_any_training(walked: Path, capsys: pytest.CaptureFixture[str]):
    shown = facts(capsys, "examples", "transformer_mini", "--data", walked / "data", "--count", 1)
    source, target = ([t for t, s in zip(shown["tokens"], shown["segment_ids"], strict=True) if s == n] for n in (0, 1))
    assert source[-1] == "[SEP]"
    assert target[0] == "[CLS]"
    assert [label != -100 for label in shown["labels"]] == [s == 1 for s in shown["segment_ids"]]
    assert main(["examples", "transformer_mini", "--data", f"{walked}/data", "--count", "1"]) == 0
    out = capsys.readouterr().out
    assert "source  " in out
    assert "target  " in out


def test_a_step_of_the_run_is_shown_with_both_sides(walked: Path, capsys: pytest.CaptureFixture[str]):
    capsys.readouterr()
    assert main(["examples", "--run", f"{walked}/run", "--step", "3", "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {segment for row in rows for segment in row["segment_ids"]} == {0, 1}
    steps = [json.loads(line) for line in (walked / "run" / "metrics.jsonl").read_text().splitlines()]
    assert steps[0]["tokens"] < 512  # of both sides, without padding
    assert steps[0]["tokens"] > 300


def test_dry_run_counts_both_sides(walked: Path, capsys: pytest.CaptureFixture[str]):
    words = ["pretrain", "transformer_mini", "--data", walked / "data", "--dry-run", *settings(train_steps=10)]
    report = facts(capsys, *words)
    assert 3000 < report["tokens"] <= 5120
    assert report["memory_bytes"] > 0


def test_a_model_directory_translates_as_its_run(walked: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path):
    assert main(["export", f"{walked}/run", "--to", "clozeworks", "--out", f"{tmp_path}/model"]) == 0
    assert "clozeworks translate" in capsys.readouterr().out
    texts = [a for a, _ in pairs(5, seed=9)]
    assert clozeworks.load(tmp_path / "model").translate(texts) == clozeworks.load(walked / "run").translate(texts)
    assert (
        clozeworks.load(tmp_path / "model").translate(texts[0])[0]
        == clozeworks.load(walked / "run").translate(texts)[0]
    )


def test_what_cannot_be_is_refused(walked: Path, road: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path):
    run, test = walked / "run", walked / "test.jsonl"
    (tmp_path / "three.jsonl").write_text('{"a": "x", "b": "y", "c": "z"}\n')
    (tmp_path / "empty.txt").write_text("")
    for words, message in [
        (["translate", run], "no text"),
        (["translate", run, "x", "--file", test], "both TEXT and --file"),
        (["translate", run, "--file", tmp_path / "empty.txt"], "an empty file"),
        (["translate", run, "--file", tmp_path], "a directory"),
        (["translate", road / "run", "x"], "this model has none"),
        (["generate", run, "x"], "use clozeworks translate"),
        (["evaluate", run], "neither --data nor --test"),
        (["evaluate", run, "--data", walked / "data", "--test", test], "both --data and --test"),
        (["evaluate", run, "--test", tmp_path / "three.jsonl"], "--pairs: not given; two fields"),
        (["evaluate", run, "--test", test, "--pairs", "en,fr"], "no field 'fr'"),
        (["evaluate", run, "--test", test, "--pairs", "en"], "two fields, source and target"),
        (["evaluate", run, "--test", test, "--context", 8], "text of one side"),
        (["evaluate", road / "run", "--test", test, "--pairs", "a,b"], "a model with a decoder translates"),
        (["evaluate", run, "--data", road / "data"], "another tokenizer"),
        (["pretrain", "transformer_mini", "--data", road / "data", "--dry-run"], "documents of two sentences"),
    ]:
        assert message in refused(capsys, *words), words


def test_a_decoder_and_pairs_ask_for_each_other(walked: Path, capsys: pytest.CaptureFixture[str]):
    data = ["--data", walked / "data", "--dry-run"]
    for changes, message in [
        (["decoder=none"], "it writes a target from a source, which takes a decoder"),
        (["objective.corruption=Shift"], "a decoder writes a target from a source; use Translate"),
        (["objective.segments=FullSentences"], "examples of FullSentences have one side; use segments=Pairs"),
    ]:
        words = [word for change in changes for word in ("--set", change)]
        assert message in refused(capsys, "pretrain", "transformer_mini", *data, *words)
    message = refused(capsys, "pretrain", "gpt_mini", *data, "--set", "objective.corruption=Translate")
    assert "Translate" in message


def test_without_sacrebleu_the_extra_is_named(walked: Path, capsys: pytest.CaptureFixture[str], monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "sacrebleu.metrics.bleu", None)
    message = refused(capsys, "evaluate", walked / "run", "--test", walked / "test.jsonl", "--beams", 1)
    assert "pip install clozeworks[bleu]" in message


def test_a_stopped_run_ends_as_one_that_was_not(walked: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path):
    def train(out: str, steps: int = 6) -> dict:
        words = ["pretrain", "transformer_mini", "--data", walked / "data", "--out", tmp_path / out]
        return facts(capsys, *words, *settings(train_steps=steps, train_save_every=3, train_micro_tokens=128))

    whole = train("whole")
    shutil.copytree(tmp_path / "whole", tmp_path / "again")
    shutil.rmtree(tmp_path / "again" / "step-00000006")
    again = train("again")
    assert again["resumed"] == 3
    assert again["tokens"] == whole["tokens"]
    a, b = (dict(clozeworks.load(tmp_path / name).model.named_parameters()) for name in ("whole", "again"))
    assert all(torch.equal(a[name], b[name]) for name in a)
