"""From labelled files to a model that answers, as its users go."""

import json
import math
import os
import signal
from pathlib import Path

import numpy as np
import pytest

import clozeworks as cw
from clozeworks.cli.main import main
from clozeworks.data.shards.corpus import Corpus
from clozeworks.exchange import tensors
from clozeworks.train.finetune import run as running
from clozeworks.train.finetune.continue_pretraining import make_recipe
from tests.command_line import facts, override, refused
from tests.labelled import QUICK, rows, write

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("labelled")
    write(folder / "train.jsonl", rows())
    write(folder / "dev.jsonl", rows(24, 1))
    return folder


def command(road: Path, files: Path, out: Path, *more: object, dev: bool = True) -> list[str]:
    words = ["finetune", "classify", "--model", road / "run", "--train", files / "train.jsonl", "--out", out]
    words += ["--dev", files / "dev.jsonl"] if dev else []
    return [*map(str, words), *override(QUICK, *more)]


def test_it_learns_says_so_and_leaves_a_model(road: Path, files: Path, tmp_path: Path, capsys):
    assert main(command(road, files, tmp_path / "run")) == 0
    out = capsys.readouterr().out
    assert "48 to learn from, 24 to measure on" in out
    assert "6 epochs, 36 steps of 8, rate 3.0e-03" in out
    assert "accuracy" in out
    assert "95 % of resampled rows" in out
    assert "next   clozeworks predict" in out
    report = facts(capsys, *command(road, files, tmp_path / "run"))  # finished already: the same figures again
    assert report["accuracy"] >= 0.9
    low, high = report["intervals"]["accuracy"]
    assert 0 <= low <= report["accuracy"] <= high <= 1
    assert (report["task"], report["rows"], report["finished"]) == ("classify", {"train": 48, "dev": 24}, True)
    assert sum(report["labels"].values()) == 48
    assert report["seeds"][0]["accuracy"] == report["mean"]["accuracy"] == report["accuracy"]
    assert report["spread"] == {}
    assert report["baselines"].keys() == {"majority", "tfidf_words", "tfidf_characters"}
    assert "accuracy of TF-IDF with logistic regression, n-grams of words" in out
    loaded = cw.load(tmp_path / "run")
    assert loaded.recipe.task is not None
    assert loaded.recipe.task.labels == ("cold", "warm")


def test_without_dev_rows_are_put_aside(road: Path, files: Path, tmp_path: Path, capsys):
    aside = ["--dry-run", "--dev-share", "0.1"]
    report = facts(capsys, *command(road, files, tmp_path / "run", *aside, dev=False))
    assert sum(report["rows"].values()) == 48
    assert 3 <= report["rows"]["dev"] <= 7
    assert report["memory_bytes"] > 0 < report["seconds"]
    assert main(command(road, files, tmp_path / "run", *aside, dev=False)) == 0
    out = capsys.readouterr().out
    assert "put aside" in out
    assert "measured here just now" in out
    assert not (tmp_path / "run").exists()


def test_few_rows_without_dev_are_all_learned_from(road: Path, files: Path, tmp_path: Path, capsys):
    words = command(road, files, tmp_path / "run", "--epochs", "1", dev=False)
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "48 to learn from" in out
    assert "to measure on" not in out
    assert "--folds 5 estimates, --dev FILE measures" in " ".join(out.split())
    report = facts(capsys, *words)
    assert (report["rows"], report["finished"], report["baselines"]) == ({"train": 48}, True, {})
    assert "accuracy" not in report
    assert "folds" not in report


def test_folds_measure_the_model_and_what_counts_words(road: Path, files: Path, tmp_path: Path, capsys):
    words = command(road, files, tmp_path / "run", "--folds", "3", dev=False)
    single, triple = (
        facts(capsys, *command(road, files, tmp_path / "run", *more, "--dry-run", dev=False))
        for more in ([], ["--folds", "3"])
    )
    assert triple["tokens"] == 3 * single["tokens"]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "48 to learn from, measured in 3 folds" in out
    assert "48 rows, each by the one of 3 models that did not learn from it" in " ".join(out.split())
    report = facts(capsys, *words)
    assert (report["folds"], report["rows"], report["finished"]) == (3, {"train": 48}, True)
    assert report["accuracy"] >= 0.7
    low, high = report["intervals"]["accuracy"]
    assert low <= report["accuracy"] <= high
    assert report["baselines"].keys() == {"majority", "tfidf_words", "tfidf_characters"}
    assert "together with --dev" in refused(capsys, *command(road, files, tmp_path / "run", "--folds", "3"))
    listed = [run["path"] for run in facts(capsys, "runs", tmp_path)["runs"]]
    assert listed == [str(tmp_path / "run")]


def test_another_recipe_is_refused_and_columns_are_named(road: Path, files: Path, tmp_path: Path, capsys):
    own = [{"review": row["text"], "stars": row["label"]} for row in rows(16)]
    write(tmp_path / "own.jsonl", own)
    words = ["finetune", "classify", "--model", road / "run", "--train", tmp_path / "own.jsonl", "--out"]
    words += [tmp_path / "run", *override(QUICK, "--columns", "text=review", "label=stars", "--epochs", "1")]
    assert facts(capsys, *words)["finished"]
    message = refused(capsys, *words, "--set", "train.learning_rate=1e-3")
    assert "another recipe than it was begun with (train.learning_rate 0.003 -> 0.001)" in message
    assert "NAME=VALUE is needed" in refused(capsys, *words, "--columns", "text")
    message = refused(capsys, *command(road, files, tmp_path / "run"))
    assert "another" in message


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--freeze", "--gradual-unfreezing"], "a frozen encoder never learns"),
        (["--freeze", "--from-scratch"], "leave one of them out"),
        (["--from-scratch", "--continue-pretraining", "3"], "no pretraining that could be continued"),
        (["--max-length", "4000"], "the model has 512 positions"),
        (["--layer-decay", "2"], "a number in (0, 1]"),
        (["--layer-decay", "0"], "a number in (0, 1]"),
        (["--features", "summ"], "did you mean sum"),
        (["--set", "train.lerning_rate=1"], "did you mean learning_rate"),
    ],
)
def test_what_does_not_go_together_is_refused(road: Path, files: Path, tmp_path: Path, capsys, more, message):
    assert message in refused(capsys, *command(road, files, tmp_path / "run", *more))
    assert not (tmp_path / "run").exists()


def test_seeds_give_a_mean_and_the_best_is_the_model(road: Path, files: Path, tmp_path: Path, capsys):
    few = ["--seeds", "3", "--epochs", "2"]
    report = facts(capsys, *command(road, files, tmp_path / "run", *few))
    values = [each["accuracy"] for each in report["seeds"]]
    assert [each["seed"] for each in report["seeds"]] == [0, 1, 2]
    assert report["mean"]["accuracy"] == pytest.approx(np.mean(values))
    assert report["spread"]["accuracy"] == pytest.approx(np.std(values, ddof=1))
    assert report["accuracy"] == max(values)
    best = json.loads((tmp_path / "run" / running.SEEDS).read_text())["best"]
    assert values[best] == max(values)
    here, there = (cw.load(tmp_path / "run" / name).model.state_dict() for name in ("", f"seed-{best}"))
    assert all(value.equal(there[name]) for name, value in here.items())
    assert facts(capsys, *command(road, files, tmp_path / "run", *few)) | {"notes": []} == report | {"notes": []}
    assert "is no run" in refused(capsys, *command(road, files, tmp_path / "run"))


def test_a_signal_ends_it_and_the_same_command_continues(road: Path, files: Path, tmp_path: Path, capsys, monkeypatch):
    whole = facts(capsys, *command(road, files, tmp_path / "whole", "--gradual-unfreezing"))
    first = running.finetune_run

    class Stop:
        def write(self, row: dict) -> None:
            if row.get("step") == 20:
                os.kill(os.getpid(), signal.SIGTERM)

        def close(self) -> None: ...

    monkeypatch.setattr(running, "finetune_run", lambda *given, **how: first(*given, **how, writers=[Stop()]))
    assert main([*command(road, files, tmp_path / "cut", "--gradual-unfreezing"), "--json"]) == 128 + signal.SIGTERM
    assert not json.loads(capsys.readouterr().out)["finished"]
    monkeypatch.setattr(running, "finetune_run", first)
    again = facts(capsys, *command(road, files, tmp_path / "cut", "--gradual-unfreezing"))
    assert again["accuracy"] == whole["accuracy"]
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "cut")]
    assert weights[0] == weights[1]


def test_further_pretraining_comes_first(road: Path, files: Path, tmp_path: Path, capsys):
    words = command(road, files, tmp_path / "run", "--continue-pretraining", "3", "--epochs", "1")
    report = facts(capsys, *words)
    assert report["finished"]
    assert (tmp_path / "run" / "text" / "manifest.json").is_file()
    further = cw.load(tmp_path / "run" / "continued")
    assert further.recipe.train.steps == 3
    assert further.recipe.task is None
    source = json.loads((tmp_path / "run" / "run.json").read_text())["source"]
    plain = facts(capsys, *command(road, files, tmp_path / "plain", "--epochs", "1"))
    assert plain["finished"]
    assert source != json.loads((tmp_path / "plain" / "run.json").read_text())["source"]
    assert facts(capsys, *words)["accuracy"] == report["accuracy"]
    words[words.index("--model") + 1] = str(tmp_path / "plain")
    words[words.index("--out") + 1] = str(tmp_path / "other")
    assert "a fine-tuned model" in refused(capsys, *words)


def test_pretraining_continues_with_text_of_the_domain(road: Path, files: Path, tmp_path: Path, capsys):
    (tmp_path / "domain.txt").write_text("the fox was cold\n\nthe man was warm\n", encoding="utf-8")
    text = [tmp_path / "domain.txt", road / "data"]
    words = command(road, files, tmp_path / "run", "--epochs", "1", "--continue-pretraining", "2", "--text", *text)
    assert facts(capsys, *words)["finished"]
    record = json.loads((tmp_path / "run" / "continued" / "run.json").read_text())
    rows, prepared = (Corpus.open(place, "train") for place in (tmp_path / "run" / "text", road / "data"))
    assert [each["fingerprint"] for each in record["data"]] == [rows.fingerprint, prepared.fingerprint]
    assert [each["weight"] for each in record["data"]] == [len(rows), len(prepared)]
    plain = command(road, files, tmp_path / "plain", "--epochs", "1", "--continue-pretraining", "2")
    assert facts(capsys, *plain)["finished"]
    assert rows.counts.documents == Corpus.open(tmp_path / "plain" / "text", "train").counts.documents + 2
    assert main(command(road, files, tmp_path / "dry", "--dry-run", "--text", text[0])) == 0
    assert "500 steps of pretraining on these texts and those of --text" in capsys.readouterr().out
    assert "missing.txt" in refused(capsys, *command(road, files, tmp_path / "no", "--text", tmp_path / "missing.txt"))
    assert not (tmp_path / "no").exists()


def test_an_encoder_without_an_objective_continues_with_masked_tokens(road: Path):
    recipe = cw.load(road / "run").recipe
    recipe.objective.losses = ()
    continued = make_recipe(recipe, 5)
    assert [loss.name for loss in continued.objective.losses] == ["masked_lm"]
    assert continued.objective.segments.length <= recipe.length
    assert recipe.objective.losses == ()


def test_fresh_weights_are_trained_as_in_pretraining(road: Path, files: Path, tmp_path: Path, capsys):
    words = command(road, files, tmp_path / "run", "--dry-run")
    words = [word for word in words if word not in QUICK]
    pretrained, scratch = facts(capsys, *words), facts(capsys, *words, "--from-scratch")
    assert scratch["learning_rate"] == cw.load(road / "run").recipe.train.learning_rate > 0
    assert scratch["epochs"] == 3 * pretrained["epochs"]
    assert pretrained["epochs"] == 20  # few rows
    assert math.isclose(pretrained["learning_rate"], 3e-5 * 768 / 128)


@pytest.mark.parametrize("features", ["sum", "concat", "mix"])
def test_features_of_a_frozen_encoder(road: Path, files: Path, tmp_path: Path, capsys, features):
    words = command(road, files, tmp_path / "run", "--freeze", "--features", features, "--epochs", "1")
    assert facts(capsys, *words)["finished"]
    before, after = (dict(cw.load(path).model.named_parameters()) for path in (road / "run", tmp_path / "run"))
    assert all(after[name].equal(value) for name, value in before.items() if name in after)


def test_losses_that_are_no_numbers_end_with_an_error_and_a_sound_checkpoint(road: Path, tmp_path: Path, capsys):
    """Fewer bad steps than the guard has patience for, so nothing but their end can tell."""
    train, out = write(tmp_path / "train.jsonl", rows(48)), tmp_path / "task"
    words = ["finetune", "classify", "--model", road / "run", "--train", train, "--out", out]
    changes = ["--epochs", "2", "--set", "train.learning_rate=1e12", "--set", "train.warmup=0"]
    capsys.readouterr()
    assert main([str(word) for word in [*words, *override(QUICK, *changes)]]) == 2
    message = capsys.readouterr().err
    assert "finite" in message
    assert "lower train.learning_rate" in message
    assert not (out / "model.safetensors").exists()
    for saved in out.glob("step-*/model.safetensors"):
        assert all(tensor.isfinite().all() for tensor in tensors.read(saved).values())
