"""clozeworks examples --run --step: what a step was trained on, through phases and mixtures; and hopeless runs."""

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from clozeworks.cli.main import main
from clozeworks.core import checksummed_json, spec
from clozeworks.data.shards.prepare import prepare
from clozeworks.optim.settings import Phase
from clozeworks.recipe import Recipe
from clozeworks.train import session
from clozeworks.train.pretraining_batches import PretrainingBatches
from clozeworks.train.run import fit_to_data, open_data, pretrain
from tests.command_line import refused
from tests.train.conftest import documents, tiny_recipe

STEPS = 14
PAIR = (0.7, 0.3)


def recipe() -> Recipe:
    """Two lengths; a step holds eight rows or four."""
    return tiny_recipe(STEPS, phases=(Phase(0.5, 32), Phase(0.5, 64)), log_every=1, save_every=5)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two corpora under one tokenizer and a run on both."""
    folder = tmp_path_factory.mktemp("steps")
    prepare(documents(60, 1), folder / "a", vocab=400, heldout=0.1)
    prepare(documents(60, 2), folder / "b", tokenizer=folder / "a", heldout=0.1)
    pretrain(recipe(), [(folder / "a", PAIR[0]), (folder / "b", PAIR[1])], folder / "run", progress=False)
    return folder


def rows(capsys: pytest.CaptureFixture[str], *words: object) -> list[dict]:
    capsys.readouterr()
    assert main(["examples", *map(str, words), "--json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def trained_on(place: Path) -> list[list[dict]]:
    """What each step is given by the feed itself: the tokens and labels of each example, in order."""
    corpora, tokenizer = open_data([(place / "a", PAIR[0]), (place / "b", PAIR[1])])
    found = []
    for micro in PretrainingBatches(fit_to_data(recipe(), tokenizer), corpora, tokenizer.vocabulary()):
        examples = []
        for batch in micro:
            assert batch.targets is not None
            assert batch.labels is not None
            tokens = batch.tokens.flatten().numpy()
            labels = np.full(len(tokens), -100)
            labels[batch.targets.numpy()] = batch.labels.numpy()
            ends = zip(batch.layout.starts, batch.layout.lengths, strict=True)
            cuts = [slice(start, start + length) for start, length in list(ends)[: len(batch.index)]]
            examples += [
                {"index": index, "input_ids": tokens[cut].tolist(), "labels": labels[cut].tolist()}
                for index, cut in zip(batch.index, cuts, strict=True)
            ]
        found.append(examples)
    return found


def test_every_step_shows_what_it_was_trained_on(place: Path, capsys):
    expected, directories = trained_on(place), set()
    assert len(expected) == STEPS
    for step in (1, 2, 5, 6, 7, 8, 9, 11, STEPS):
        shown = rows(capsys, "--run", place / "run", "--step", step)
        assert [{name: row[name] for name in ("index", "input_ids", "labels")} for row in shown] == expected[step - 1]
        assert {row["step"] for row in shown} == {step}
        directories |= {row["data"] for row in shown}
    assert directories == {str((place / name).resolve()) for name in "ab"}


def test_for_people(place: Path, capsys):
    assert main(["examples", "--run", str(place / "run"), "--step", "9", "--count", "2"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "9 of 14 of" in out
    assert re.search(r"outcome loss \d\.\d+, grad norm \d", out)
    assert len(re.findall(r"\d+ in epoch \d of ", out)) == 2


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--run", "RUN"], "a run and one of its steps are needed"),
        (["--step", "3"], "a run and one of its steps are needed"),
        (["bert_tiny", "--run", "RUN", "--step", "3"], "also recipe"),
        (["--run", "RUN", "--step", "3", "--set", "train.seed=1"], "also set"),
        (["--run", "RUN", "--step", "15"], "this run has 14 steps"),
        (["--run", "RUNx", "--step", "3"], "did you mean"),
        (["bert_tiny"], "no --data"),
        ([], "no RECIPE"),
    ],
)
def test_what_cannot_be_shown_is_said(place: Path, capsys, words: list[str], told: str):
    run = str(place / "run")
    assert told in refused(capsys, "examples", *[word.replace("RUN", run) for word in words])


def test_other_text_is_refused(place: Path, capsys, tmp_path: Path):
    pretrain(tiny_recipe(2), [(place / "a", 1.0)], tmp_path / "run", progress=False)
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    record["data"][0]["directory"] = str(place / "b")
    (tmp_path / "run" / "run.json").write_text(json.dumps(checksummed_json.add_checksum(record)))
    assert "other shards than this run" in refused(capsys, "examples", "--run", tmp_path / "run", "--step", 1)


def test_a_hopeless_run_ends_with_2_and_a_command_that_works(place: Path, capsys, tmp_path: Path, monkeypatch):
    (tmp_path / "recipe.json").write_text(json.dumps(spec.to_dict(tiny_recipe(99))))
    monkeypatch.setattr(session, "learning_rate", lambda step, train, width: 1e38)
    words = ["pretrain", tmp_path / "recipe.json", "--data", place / "a", "--out", tmp_path / "my run"]
    told = refused(capsys, *words, "--set", "train.guard.patience=2", "--set", "train.guard.rollbacks=1")
    assert re.search(r"step \d+: loss (nan|inf), gradient norm \S+ \(not finite\), and so for 2 steps in a row", told)
    found = re.search(r"see `clozeworks (.*?)`", told)
    assert found is not None
    assert main(shlex.split(found[1])) == 0
    assert "not finite" in capsys.readouterr().out
