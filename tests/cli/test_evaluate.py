"""clozeworks evaluate, fill-mask, export and import."""

import pytest

from clozeworks.cli.main import main
from clozeworks.cli.next_command import suggest_command
from clozeworks.recipes import recipe
from tests.command_line import facts, refused

pytestmark = pytest.mark.usefixtures("one_thread")


def test_evaluate_beside_the_baseline(road, capsys):
    report = facts(capsys, "evaluate", road / "run", "--data", road / "data")
    assert {"loss", "masked_accuracy", "perplexity", "unigram_loss", "unigram_accuracy", "count"} <= set(report)
    assert report["loss"] == pytest.approx(report["masked_lm"] + report["sentence_pair"])
    assert facts(capsys, "evaluate", road / "hf", "--data", road / "data")["count"] > 0
    assert main(["evaluate", str(road / "run"), "--data", str(road / "data")]) == 0
    assert "word frequencies" in capsys.readouterr().out


def test_evaluate_refuses_another_tokenizer(road, tmp_path, capsys):
    assert main(["prepare", str(road / "more.txt"), "--out", str(tmp_path / "other"), "--vocab", "90"]) == 0
    assert "another tokenizer" in refused(capsys, "evaluate", road / "run", "--data", tmp_path / "other")
    words = ["pretrain", "bert_tiny", "--from", road / "run", "--data", tmp_path / "other", "--out", tmp_path / "run"]
    assert "must keep their ids" in refused(capsys, *words)


def test_fill_mask(road, capsys):
    report = facts(capsys, "fill-mask", road / "run", "the [MASK] fox [MASK].", "--top", "3")
    assert [len(guesses) for guesses in report["masks"]] == [3, 3]
    assert set(report["masks"][0][0]) == {"token", "score", "id", "text"}
    assert "at least one [MASK] is needed" in refused(capsys, "fill-mask", road / "run", "the fox")
    assert main(["fill-mask", str(road / "hf"), "the [MASK] fox"]) == 0
    assert "chance" in capsys.readouterr().out


def test_export_and_import_are_inverse(road, tmp_path, capsys):
    report = facts(capsys, "import", road / "hf", "--out", tmp_path / "model")
    assert report["heads"] == ["masked_lm", "sentence_pair"]
    assert facts(capsys, "export", tmp_path / "model", "--to", "hf", "--out", tmp_path / "hf")["files"]
    weights = "model.safetensors"
    assert (tmp_path / "hf" / weights).read_bytes() == (road / "hf" / weights).read_bytes()
    assert "exists already" in refused(capsys, "export", road / "run", "--out", road / "hf")


def test_evaluate_with_other_rounds(road, tmp_path, capsys):
    puts = ["encoder.stack.block.mixer=LSH(heads=2, chunk=8)", "objective.segments.length=32", "train.batch_tokens=128",
            "encoder.width=32", "encoder.stack.depth=2", "train.steps=4"]  # fmt: skip
    words = [word for put in puts for word in ("--set", put)]
    run, data = str(tmp_path / "run"), str(road / "data")
    assert main(["pretrain", "gpt_mini", "--data", data, "--out", run, *words]) == 0
    one, again, eight = (
        facts(capsys, "evaluate", run, "--data", data, *more)["loss"] for more in ((), (), ("--rounds", "8"))
    )
    assert one == again != eight
    message = refused(capsys, "evaluate", road / "run", "--data", data, "--rounds", "8")
    assert "none of its layers is LSH attention" in message
    assert main(["generate", run, "the red fox", "--max-new-tokens", "20"]) == 0, "reading all again for each token"


def test_evaluate_with_another_memory(road, tmp_path, capsys):
    """As it is published: trained with one memory, measured with a longer one and shorter rows."""
    puts = ["objective.segments=Stream(length=32, streams=4)", "encoder.stack.memory=32", "train.batch_tokens=128",
            "encoder.width=32", "encoder.stack.depth=2", "encoder.stack.block.mixer.heads=2",
            "train.steps=4"]  # fmt: skip
    words = [word for put in puts for word in ("--set", put)]
    run, data = str(tmp_path / "run"), str(road / "data")
    assert main(["pretrain", "gpt_mini", "--data", data, "--out", run, *words]) == 0
    report = facts(capsys, "evaluate", run, "--data", data)
    assert (report["length"], report["memory"], report["streams"]) == (32, 32, 1)
    assert report["perplexity"] > 1
    assert report["bits_per_character"] > 0
    longer = facts(capsys, "evaluate", run, "--data", data, "--memory", "96", "--max-length", "16")
    assert (longer["length"], longer["memory"]) == (16, 96)
    assert longer["count"] == report["count"], "each token is asked for once, whatever the rows"
    none = facts(capsys, "evaluate", run, "--data", data, "--memory", "0")
    assert len({report["loss"], longer["loss"], none["loss"]}) == 3
    assert main(["evaluate", run, "--data", data]) == 0
    assert "read as one text in streams: 1 side by side, rows of 32, a memory of 32" in capsys.readouterr().out
    assert "has 512 positions" in refused(capsys, "evaluate", run, "--data", data, "--max-length", "600")
    assert "8 or more" in refused(capsys, "evaluate", run, "--data", data, "--max-length", "4")
    message = refused(capsys, "evaluate", road / "run", "--data", data, "--memory", "8")
    assert "it was trained without a memory" in message
    assert main(["generate", run, "the red fox", "--max-new-tokens", "60"]) == 0, "beyond the rows it was trained on"


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("bert_tiny", "fill-mask 'a run' \"... [MASK] ...\""),
        ("gpt_mini", "generate 'a run'"),
        ("elmo_mini", "finetune tag --model 'a run' --train train.jsonl --freeze --features mix --out tags"),
        ("transformer_mini", "translate 'a run' \"...\""),
    ],
)
def test_what_to_try_suits_the_model(name: str, command: str):
    assert suggest_command(recipe(name), "a run", None) == f"clozeworks {command}"
