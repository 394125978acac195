"""clozeworks pretrain: going on, refusing, beginning from a model."""

import json
import subprocess
import sys
import time

import pytest

from clozeworks.cli.main import main
from clozeworks.inference.text_encoder import load
from tests.command_line import OWN_PART, SMALL, facts, refused, size

pytestmark = pytest.mark.usefixtures("one_thread")


def test_pretrain_goes_on_and_knows_when_it_is_done(road, tmp_path, capsys):
    words = ["pretrain", "bert_tiny", "--data", road / "data", "--out", tmp_path / "run", *SMALL]
    found = facts(capsys, *words)
    assert (found["step"], found["finished"], found["resumed"]) == (4, True, None)
    again = facts(capsys, *words)
    assert again["resumed"] == 4
    assert not any("going on" in note for note in again["notes"])
    assert "keeps its recipe" in refused(capsys, *words, "--set", "train.steps=5")
    assert main([*map(str, words)]) == 0
    told = capsys.readouterr().out
    assert told.count("finished already, all 4 steps of it; to train it further, begin another run: --from ") == 1
    assert "going on" not in told


def test_options_are_fields_of_the_recipe(road, tmp_path, capsys):
    own = ["--steps", 1, "--learning-rate", 0.002, "--batch-tokens", 128, "--max-length", 16, "--seed", 7]
    facts(capsys, "pretrain", "bert_tiny", "--data", road / "data", "--out", tmp_path / "run", *own)
    made = load(tmp_path / "run").recipe
    train = made.train
    assert (train.steps, train.learning_rate, train.batch_tokens, train.seed) == (1, 0.002, 128, 7)
    assert made.objective.segments.length == 16


REFUSED = [
    ("objective.segments=Stream(length=32, streams=7)", "a step holds rows of 32 tokens of all 7 streams"),
    ("objective.segments=Pairs(length=32, target_length=8)", "two-sided text is documents of two sentences"),
    ("objective.corruption=MaskPhrases(stage=entity)", "text with annotated units is needed"),
    ("objective.losses=[]", "at least one loss is needed to train"),
    ("train.phases=[Phase(share=0.5, length=32), Phase(share=0.5, length=4)]", "at least 8 tokens"),
]


@pytest.mark.parametrize(("change", "said"), REFUSED, ids=[change for change, _ in REFUSED])
def test_a_refused_run_leaves_nothing(change, said, road, tmp_path, capsys):
    words = ["pretrain", "roberta_mini", "--data", road / "data", "--out", tmp_path / "run", *SMALL, "--set", change]
    assert said in refused(capsys, *words)
    assert not list(tmp_path.iterdir())


def test_a_refused_start_from_a_model_leaves_nothing(road, tmp_path, capsys):
    words = ["pretrain", "bert_tiny", "--from", road / "run", "--data", road / "data", "--out", tmp_path / "run"]
    assert "--from" in refused(capsys, *words, *SMALL, "--set", "encoder.stack.depth=3")
    assert not list(tmp_path.iterdir())


def test_dry_run_writes_nothing(road, tmp_path, capsys):
    found = facts(capsys, "pretrain", "bert_tiny", "--data", road / "data", "--dry-run", *SMALL)
    assert found["steps"] == 4
    assert found["tokens"] == pytest.approx(4 * 256, rel=0.2)
    assert found["epochs"] == pytest.approx(found["tokens"] / found["corpus_tokens"])
    assert found["seconds"] > 0
    assert found["memory_bytes"] > 16 * found["parameters"]
    assert "no --out" in refused(capsys, "pretrain", "bert_tiny", "--data", road / "data")


def test_corpora_are_mixed_by_weight(road, tmp_path, capsys):
    odd = tmp_path / "more:0.5"  # a colon that belongs to the name
    assert main(["prepare", str(road / "more.txt"), "--out", str(odd), "--tokenizer", str(road / "data")]) == 0
    words = ["pretrain", "bert_tiny", "--data", f"{road}/data:0.7", f"{odd}:0.3", "--out", tmp_path / "run", *SMALL]
    assert facts(capsys, *words)["finished"]
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert [entry["weight"] for entry in record["data"]] == [0.7, 0.3]
    assert facts(capsys, "pretrain", "bert_tiny", "--data", odd, "--out", tmp_path / "one", *SMALL)["finished"]


def test_continue_from_a_model_of_another_shape(road, tmp_path, capsys):
    """The directory's encoder wins over the recipe's, and the command says so."""
    words = ["pretrain", "bert_mini", "--from", road / "hf", "--data", road / "data", "--out", tmp_path / "run", *SMALL]
    found = facts(capsys, *words)
    assert any("width 128 (bert_mini has 256)" in note for note in found["notes"])
    assert json.loads((tmp_path / "run" / "recipe.json").read_text())["encoder"]["width"] == 128
    assert facts(capsys, *words)["resumed"] == 4
    # A head that the source lacks is fresh, and named.
    one = [
        "pretrain",
        "roberta_mini",
        "--from",
        road / "run",
        "--data",
        road / "data",
        "--out",
        tmp_path / "one",
        *SMALL,
    ]
    assert any("sentence_pair is left behind" in note for note in facts(capsys, *one)["notes"])
    two = [
        "pretrain",
        "bert_mini",
        "--from",
        tmp_path / "one",
        "--data",
        road / "data",
        "--out",
        tmp_path / "two",
        *SMALL,
    ]
    assert any("heads.sentence_pair" in note for note in facts(capsys, *two)["notes"])


def test_pairs_need_two_segment_types(road, tmp_path, capsys):
    single = [*SMALL, "--set", "encoder.embed.segments=1"]
    assert (
        main([*map(str, ["pretrain", "roberta_mini", "--data", road / "data", "--out", tmp_path / "one", *single])])
        == 0
    )
    words = ["pretrain", "bert_mini", "--from", tmp_path / "one", "--data", road / "data", "--out", tmp_path / "two"]
    assert "one segment type" in refused(capsys, *words)


def test_continue_with_new_words(road, tmp_path, capsys):
    (tmp_path / "words.txt").write_text("gemstones\nfox\n")
    capsys.readouterr()
    prepared = facts(
        capsys, "prepare", road / "more.txt", "--tokenizer", road / "hf", "--add-tokens", tmp_path / "words.txt",
        "--out", tmp_path / "data",
    )  # fmt: skip
    words = [
        "pretrain",
        "bert_tiny",
        "--from",
        road / "hf",
        "--data",
        tmp_path / "data",
        "--out",
        tmp_path / "run",
        *SMALL,
    ]
    found = facts(capsys, *words)
    assert prepared["tokenizer"]["size"] == size(road / "data") + 1  # it knew "fox" already
    assert any("1 new token:" in note for note in found["notes"])
    assert facts(capsys, "fill-mask", tmp_path / "run", "the [MASK] fox")["masks"]


def test_own_parts_come_back(road, tmp_path, capsys):
    own = tmp_path / "own.py"
    own.write_text(OWN_PART)
    small = [*SMALL, "--set", "encoder.width=32"]
    run = tmp_path / "run"
    assert facts(capsys, "pretrain", f"{own}:averaged", "--data", road / "data", "--out", run, *small)["finished"]
    assert "Average" in refused(capsys, "fill-mask", run, "the [MASK] fox")
    assert facts(capsys, "fill-mask", run, "the [MASK] fox", "--parts", own)["masks"]


@pytest.mark.slow
def test_ctrl_c_saves_and_says_how_to_go_on(road, tmp_path):
    import signal

    words = [
        "pretrain",
        "bert_tiny",
        "--data",
        f"{road}/data",
        "--out",
        f"{tmp_path}/run",
        "--set",
        "train.steps=100000",
    ]
    words += ["--set", "train.batch_tokens=256"]
    running = subprocess.Popen(
        [sys.executable, "-m", "clozeworks", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    deadline = time.time() + 120
    while not (tmp_path / "run" / "metrics.jsonl").exists() or not (tmp_path / "run" / "metrics.jsonl").read_text():
        assert time.time() < deadline
        time.sleep(0.2)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=120)
    assert running.returncode == 130, err
    assert "run the same command again to go on" in out
    assert list((tmp_path / "run").glob("step-*"))


STUDENT = [*SMALL, "--set", "encoder.width=128", "--set", "encoder.stack.block.mixer.heads=2",
           "--set", "encoder.stack.block.ffn.inner=512", "--set", "encoder.stack.depth=1"]  # fmt: skip


def test_a_student_learns_from_a_run(road, tmp_path, capsys):
    words = ["pretrain", "distilbert_mini", "--data", road / "data", *STUDENT]
    assert "learns from a teacher; give --teacher DIR" in refused(capsys, *words, "--out", tmp_path / "run")
    assert "no loss of this recipe reads" in refused(
        capsys, "pretrain", "bert_tiny", "--teacher", road / "run", "--data", road / "data", "--out", tmp_path / "run"
    )
    assert not list(tmp_path.iterdir())
    dry = facts(capsys, *words, "--teacher", road / "run", "--dry-run")
    assert dry["steps"] == 4
    found = facts(capsys, *words, "--teacher", road / "run", "--out", tmp_path / "run")
    assert found["finished"]
    assert {"soft_targets", "masked_lm", "hidden_cosine"} <= found["heldout"].keys()
    assert any("starting from layers 0 of the teacher" in note for note in found["notes"])
    assert "give --teacher DIR" in refused(capsys, *words, "--out", tmp_path / "run")
    again = [*words, "--out", tmp_path / "run", "--teacher", tmp_path / "run"]  # a model, but not the same
    assert "another teacher than it was begun with (bert_tiny " in refused(capsys, *again)
    figures = facts(capsys, "evaluate", tmp_path / "run", "--data", road / "data")
    assert figures["masked_lm"] == pytest.approx(found["heldout"]["masked_lm"], rel=1e-4)
    assert main(["export", f"{tmp_path}/run", "--to", "hf", "--out", f"{tmp_path}/hf"]) == 0
    assert json.loads((tmp_path / "hf" / "config.json").read_text())["architectures"] == ["DistilBertForMaskedLM"]
    assert facts(capsys, "fill-mask", tmp_path / "hf", "the [MASK] fox")["masks"]
