"""clozeworks pretrain: resuming, refusing, beginning from a model, starting processes elsewhere."""

import json
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from clozeworks.cli.main import main, read_command
from clozeworks.core import spec
from clozeworks.machine import doctor
from clozeworks.train.startup import setup
from tests.command_line import OWN_PART, SMALL, facts, override, refused, size
from tests.train.conftest import tiny_recipe

pytestmark = pytest.mark.usefixtures("one_thread")


def test_pretrain_continues_and_knows_when_it_is_done(road, tmp_path, capsys):
    words = ["pretrain", "bert_tiny", "--data", road / "data", "--out", tmp_path / "run", *SMALL]
    report = facts(capsys, *words)
    assert (report["step"], report["finished"], report["resumed"]) == (4, True, None)
    again = facts(capsys, *words)
    assert again["resumed"] == 4
    assert not any("resuming" in note for note in again["notes"])
    assert "keeps its recipe" in refused(capsys, *words, "--set", "train.steps=5")
    assert main([*map(str, words)]) == 0
    output = capsys.readouterr().out
    assert output.count("finished already, all 4 steps of it; to train it further, begin another run: --from ") == 1
    assert "resuming" not in output


REFUSED = [
    ("objective.segments=Stream(length=32, streams=7)", "a step holds rows of 32 tokens of all 7 streams"),
    ("objective.segments=Pairs(length=32, target_length=8)", "two-sided text is documents of two sentences"),
    ("objective.corruption=MaskPhrases(stage=entity)", "text with annotated units is needed"),
    ("objective.losses=[ActivationSize]", "ActivationSize: at least one loss that predicts is needed"),
    ("objective.losses=[]", "at least one loss that predicts is needed to train"),
    ("train.phases=[Phase(share=0.5, length=32), Phase(share=0.5, length=4)]", "8 or more"),
]


@pytest.mark.parametrize(("change", "message"), REFUSED, ids=[change for change, _ in REFUSED])
def test_a_refused_run_leaves_nothing(change, message, road, tmp_path, capsys):
    words = ["pretrain", "roberta_mini", "--data", road / "data", "--out", tmp_path / "run", *SMALL, "--set", change]
    assert message in refused(capsys, *words)
    assert not list(tmp_path.iterdir())


def test_a_refused_start_from_a_model_leaves_nothing(road, tmp_path, capsys):
    words = ["pretrain", "bert_tiny", "--from", road / "run", "--data", road / "data", "--out", tmp_path / "run"]
    assert "--from" in refused(capsys, *words, *SMALL, "--set", "encoder.stack.depth=3")
    assert not list(tmp_path.iterdir())


def test_dry_run_writes_nothing(road, tmp_path, capsys):
    report = facts(capsys, "pretrain", "bert_tiny", "--data", road / "data", "--dry-run", *SMALL)
    assert report["steps"] == 4
    assert report["tokens"] == pytest.approx(4 * 256, rel=0.2)
    assert report["epochs"] == pytest.approx(report["tokens"] / report["corpus_tokens"])
    assert report["seconds"] > 0
    assert report["memory_bytes"] > 16 * report["parameters"]
    assert "no --out" in refused(capsys, "pretrain", "bert_tiny", "--data", road / "data")


NAMED = [
    ("--steps", "3", "train.steps", 3),
    ("--learning-rate", "0.003", "train.learning_rate", 0.003),
    ("--batch-tokens", "512", "train.batch_tokens", 512),
    ("--max-length", "16", "objective.segments.length", 16),
    ("--seed", "7", "train.seed", 7),
]


@pytest.fixture(scope="module")
def plain(road, tmp_path_factory):
    """The rows of a run that is called with none of these options."""
    return train_rows(road, tmp_path_factory.mktemp("plain") / "run")


def train_rows(road, run, *words):
    """The rows of metrics that a short run writes of its steps."""
    small = ["--steps", "4", "--batch-tokens", "256", "--max-length", "32", "--set", "train.log_every=1"]
    assert (
        main([*map(str, ["pretrain", "bert_tiny", "--data", road / "data", "--out", run, *override(small, *words)])])
        == 0
    )
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [row for row in rows if "split" not in row]


@pytest.mark.parametrize(("option", "value", "path", "set_to"), NAMED, ids=[name for name, *_ in NAMED])
def test_an_option_sets_its_field_and_the_run_shows_it(option, value, path, set_to, road, plain, tmp_path):
    rows = train_rows(road, tmp_path / "run", option, value)
    field = json.loads((tmp_path / "run" / "recipe.json").read_text())
    for name in path.split("."):
        field = field[name]
    assert field == set_to
    if option == "--steps":
        assert [row["step"] for row in rows] == [1, 2, 3]
    elif option == "--learning-rate":
        assert rows[0]["loss"] == plain[0]["loss"], "the same weights before the first update"
        peaks = [max(row["learning_rate"] for row in each) for each in (rows, plain)]
        assert peaks[0] / peaks[1] == pytest.approx(0.003 / json.loads(recipe_text(road))["train"]["learning_rate"])
    elif option == "--batch-tokens":
        assert rows[-1]["tokens"] == pytest.approx(2 * plain[-1]["tokens"], rel=0.1)
    else:
        assert [row["loss"] for row in rows] != [row["loss"] for row in plain]


def recipe_text(road):
    return (road / "run" / "recipe.json").read_text()


def test_the_sequence_length_of_phases_is_theirs(road, tmp_path, capsys):
    phases = ["--set", "train.phases=[Phase(share=0.5, length=16), Phase(share=0.5, length=32)]"]
    words = ["pretrain", "bert_tiny", "--data", road / "data", "--out", tmp_path / "run", *SMALL, "--max-length", "24"]
    assert "each of its train.phases has a sequence length" in refused(capsys, *words, *phases)
    assert not list(tmp_path.iterdir())
    assert facts(capsys, *words, *phases, "--set", "train.phases=[]")["finished"]


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
    report = facts(capsys, *words)
    assert any("width 128 (bert_mini has 256)" in note for note in report["notes"])
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


@pytest.mark.parametrize(
    ("given", "rate"),
    [([], 1e-4), (["--learning-rate", "5e-4"], 5e-4), (["--set", "train.learning_rate = 1e-3"], 1e-3)],
)
def test_trained_weights_are_continued_at_a_lower_rate(road, tmp_path, capsys, given, rate):
    """Unless the user says otherwise; the run's recipe has it, and the same command resumes."""
    words = ["pretrain", "bert_tiny", "--from", road / "run", "--data", road / "data", "--out", tmp_path / "run"]
    notes = [note for note in facts(capsys, *words, *SMALL, *given)["notes"] if "learning rate" in note]
    assert [note.split(",")[0] for note in notes] == ([] if given else ["learning rate 1.0e-04 instead of 1.0e-03"])
    assert json.loads((tmp_path / "run" / "recipe.json").read_text())["train"]["learning_rate"] == rate
    assert facts(capsys, *words, *SMALL, *given)["resumed"] == 4


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
    report = facts(capsys, *words)
    assert prepared["tokenizer"]["size"] == size(road / "data") + 1  # it knew "fox" already
    assert any("1 new token:" in note for note in report["notes"])
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
def test_ctrl_c_saves_and_says_how_to_continue(road, tmp_path):
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
    assert "run the same command again to resume" in out
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
    report = facts(capsys, *words, "--teacher", road / "run", "--out", tmp_path / "run")
    assert report["finished"]
    assert {"soft_targets", "masked_lm", "hidden_cosine"} <= report["heldout"].keys()
    assert any("starting from layers 0 of the teacher" in note for note in report["notes"])
    assert "give --teacher DIR" in refused(capsys, *words, "--out", tmp_path / "run")
    again = [*words, "--out", tmp_path / "run", "--teacher", tmp_path / "run"]  # a model, but not the same
    assert "another teacher than it was begun with (bert_tiny " in refused(capsys, *again)
    metrics = facts(capsys, "evaluate", tmp_path / "run", "--data", road / "data")
    assert metrics["masked_lm"] == pytest.approx(report["heldout"]["masked_lm"], rel=1e-4)
    assert main(["export", f"{tmp_path}/run", "--to", "hf", "--out", f"{tmp_path}/hf"]) == 0
    assert json.loads((tmp_path / "hf" / "config.json").read_text())["architectures"] == ["DistilBertForMaskedLM"]
    assert facts(capsys, "fill-mask", tmp_path / "hf", "the [MASK] fox")["masks"]


def test_a_script_for_slurm_is_printed(road, capsys):
    words = ["pretrain", "bert_tiny", "--data", f"{road}/data", "--out", "my run", *SMALL]
    assert main([*words, "--launch", "slurm", "--nodes", "4", "--processes=8", "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("#!/bin/bash\n")
    assert "#SBATCH --nodes=4\n" in printed
    assert "#SBATCH --gpus-per-node=8\n" in printed
    last = shlex.split(printed.splitlines()[-1])
    assert last[:6] == ["srun", "torchrun", "--nnodes", "4", "--nproc-per-node", "8"]
    assert last[last.index("-m") :] == ["-m", "clozeworks", *words]


def test_a_line_of_torchrun_is_printed(road, capsys):
    words = ["pretrain", "bert_tiny", "--data", f"{road}/data", "--out", "run"]
    assert main([*words, "--dry-run", "--set", "train.processes=3", "--launch", "torchrun", "--nodes", "2"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("torchrun --nnodes 2 --nproc-per-node 3 --max-restarts 3 --rdzv-backend c10d")
    assert printed.endswith(f"$HEAD:29400 -m clozeworks {shlex.join(words)} --set train.processes=3\n")


def test_launch_only_prints(road, capsys):
    words = ["pretrain", "bert_tiny", "--data", f"{road}/data", "--out", f"{road}/far"]
    assert "it prints a command and starts nothing; add --dry-run" in refused(capsys, *words, "--launch", "slurm")
    assert "--nodes: 2 machines" in refused(capsys, *words, "--nodes", "2")
    assert "no --out" in refused(capsys, *words[:4], "--processes", "2")
    assert not (road / "far").exists()


def test_a_hopeless_run_ends_with_2_and_a_command_that_works(road, tmp_path, capsys, monkeypatch):
    (tmp_path / "recipe.json").write_text(json.dumps(spec.to_dict(tiny_recipe(99))))
    monkeypatch.setattr(setup, "learning_rate", lambda step, train, width: 1e38)
    words = ["pretrain", tmp_path / "recipe.json", "--data", road / "data", "--out", tmp_path / "my run"]
    message = refused(capsys, *words, "--set", "train.guard.patience=2", "--set", "train.guard.rollbacks=1")
    assert re.search(
        r"step \d+: loss (nan|inf), gradient norm \S+ \(not finite\), and so for 2 steps in a row", message
    )
    command = re.search(r"see `clozeworks (.*?)`", message)
    assert command is not None
    assert main(shlex.split(command[1])) == 0
    assert "not finite" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "measured"),
    [
        (["--budget", "10m"], True),
        (["--budget", "10m", "--dry-run"], True),
        (["--budget", "10m", "--out", "begun"], False),
        (["--budget", "10m", "--device", "cuda"], False),
        (["--budget", "30s"], False),
        ([], False),
    ],
)
def test_a_machine_is_measured_first_where_a_new_run_plans_by_time(
    words: list[str], measured: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "recipe.json").touch()
    probes: list[None] = []
    monkeypatch.setattr(doctor, "probe", lambda: probes.append(None) or doctor.default())
    monkeypatch.setattr(doctor, "apply", lambda verdict, learns: None)
    read_command(["pretrain", "cloze", "--data", "data", *words])
    assert bool(probes) == measured
