"""Rows as people have them, through the commands: long beside short, odd labels, columns that only pass through."""

import json
from pathlib import Path
from typing import Any

import pytest

import clozeworks as cw
from clozeworks.cli.main import main
from tests.command_line import facts, refused
from tests.labelled import rows, write

pytestmark = pytest.mark.usefixtures("one_thread")
WORDS = ["the", "small", "red", "fox", "runs", "by", "the", "old", "stone", "tree"]


def learn(
    capsys: pytest.CaptureFixture[str], task: str, model: Path, given: list[dict[str, Any]], out: Path, *more: str
):
    file = write(out.parent / f"{out.name}.jsonl", given)
    words = ("--model", model, "--train", file, "--dev", file, "--epochs", "1", "--out", out, *more)
    return facts(capsys, "finetune", task, *map(str, words)), file


@pytest.mark.slow
@pytest.mark.parametrize("task", ["choice", "tag", "pair", "embed"])
def test_a_long_row_of_several_texts_beside_short_ones(road: Path, tmp_path: Path, capsys, task: str):
    """A row of the batch is wider than the model has positions, and padding has none beyond them."""
    long, short = " ".join(WORDS * 60), "red fox"
    texts = [long, *[short] * 5]
    given: dict[str, list[dict[str, Any]]] = {
        "choice": [{"context": t, "question": "who?", "choices": ["fox", "hen", "tree"], "answer": 0} for t in texts],
        "tag": [{"tokens": t.split(), "tags": ["X" if w == "fox" else "O" for w in t.split()]} for t in texts],
        "pair": [{"text_a": t, "text_b": "old tree", "label": n % 2} for n, t in enumerate(texts)],
        "embed": [{"text_a": t, "text_b": "old tree", "score": n} for n, t in enumerate(texts)],
    }
    more = {"tag": ("--set", "task.crf=CRF"), "pair": ("--set", "task.both=true")}.get(task, ())
    _, file = learn(capsys, task, road / "run", given[task], tmp_path / task, *more)
    capsys.readouterr()
    assert main(["predict", str(tmp_path / task), str(file)]) == 0
    together = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    if task == "choice":
        alone = cw.load(tmp_path / task).predict(given[task][-1:])[0]
        assert together[-1]["scores"] == pytest.approx(alone["scores"], abs=1e-5)


def test_lines_of_text_are_texts_for_a_model_of_tags(road: Path, tmp_path: Path, capsys):
    given = [{"tokens": WORDS[:n], "tags": ["X" if w == "fox" else "O" for w in WORDS[:n]]} for n in (4, 5, 8, 10)]
    _, file = learn(capsys, "tag", road / "run", given, tmp_path / "tags")
    (tmp_path / "lines.txt").write_text("the red fox\nold tree by stone\n")
    capsys.readouterr()
    assert main(["predict", str(tmp_path / "tags"), str(tmp_path / "lines.txt"), "--text"]) == 0
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [len(each["tags"]) for each in answers] == [3, 4]
    report = facts(capsys, "evaluate", str(tmp_path / "tags"), "--test", str(file))
    assert report["most_frequent"] == {"O": pytest.approx(23 / 27)}


def test_labels_that_are_lists_or_look_like_markup(road: Path, tmp_path: Path, capsys):
    marked = [row | {"label": {"warm": "[/b]", "cold": "[red]"}[row["label"]]} for row in rows(12)]
    file = write(tmp_path / "marked.jsonl", marked)
    words = ["--model", road / "run", "--train", file, "--dev", file, "--epochs", 1, "--max-length", 16]
    assert main(["finetune", "classify", *map(str, words), "--out", str(tmp_path / "one")]) == 0
    assert "[red]" in capsys.readouterr().out
    assert main(["evaluate", str(tmp_path / "one"), "--test", str(file)]) == 0
    assert "[red]" in capsys.readouterr().out.split("right \\ predicted")[1].splitlines()[0]
    listed = write(tmp_path / "listed.jsonl", [row | {"label": [row["label"]]} for row in marked])
    assert "accuracy" in facts(capsys, "evaluate", str(tmp_path / "one"), "--test", str(listed))
    two = write(tmp_path / "two.jsonl", [*marked[:3], marked[3] | {"label": ["[/b]", "[red]"]}])
    assert "line 4: 2 labels" in refused(capsys, "evaluate", str(tmp_path / "one"), "--test", str(two))
    positions = refused(capsys, "evaluate", str(tmp_path / "one"), "--test", str(file), "--max-length", "100000")
    assert "positions" in positions


def test_columns_that_pass_through_make_no_broken_line(tuned: Path, tmp_path: Path, capsys):
    lines = (
        '{"text": "red fox", "note": "x\\ud800"}\n{"text": "hen", "note": NaN, "label": "old", "given_label": "man"}\n'
    )
    (tmp_path / "odd.jsonl").write_text(lines)
    capsys.readouterr()
    assert main(["predict", str(tuned), str(tmp_path / "odd.jsonl")]) == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["note"] == "x\ud800"
    assert second["note"] is None
    assert second["given_label"] == "man"
    assert second["label"] in ("warm", "cold")


def test_what_is_wrong_is_reported_before_anything_is_written(road: Path, tmp_path: Path, capsys):
    train = write(tmp_path / "train.jsonl", rows(12))
    strange = write(tmp_path / "strange.jsonl", [*rows(3), {"text": "fox", "label": "hot"}])
    words = ["--model", str(road / "run"), "--train", str(train), "--max-length", "16"]
    message = refused(capsys, "finetune", "classify", *words, "--dev", str(strange), "--out", str(tmp_path / "run"),
                   "--continue-pretraining", "2")  # fmt: skip
    assert "line 4: label 'hot'" in message
    assert not (tmp_path / "run").exists()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("mine")
    message = refused(
        capsys, "finetune", "classify", *words, "--out", str(tmp_path / "mine"), "--continue-pretraining", "2"
    )
    assert "thesis.tex" in message
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.tex"]
    assert "a directory is needed" in refused(capsys, "finetune", "classify", *words, "--out", str(train))


def test_pretraining_continues_with_the_text_of_its_own_rows(road: Path, tmp_path: Path, capsys):
    words = ["--model", str(road / "run"), "--max-length", "16", "--epochs", "1", "--continue-pretraining", "2"]
    first, other = write(tmp_path / "a.jsonl", rows(12)), write(tmp_path / "b.jsonl", rows(12, 3))
    out = tmp_path / "run"
    facts(capsys, "finetune", "classify", *words, "--train", str(first), "--out", str(out))
    for path in out.iterdir():
        if path.name not in ("text", "continued"):
            path.unlink() if path.is_file() else [each.unlink() for each in path.iterdir()] and path.rmdir()
    message = refused(capsys, "finetune", "classify", *words, "--train", str(other), "--out", str(out))
    assert "the text of other rows" in message
    facts(capsys, "finetune", "classify", *words, "--train", str(first), "--out", str(out))


def test_endings_continue_from_their_second_sentence(road: Path, tmp_path: Path, capsys):
    row = {"sent1": "the fox runs", "sent2": "it", "ending0": "sleeps", "ending1": "eats", "label": 0}
    file = write(tmp_path / "swag.jsonl", [row] * 4)
    words = ("--model", str(road / "run"), "--train", str(file), "--dev", str(file), "--out", str(tmp_path / "run"))
    report = facts(capsys, "finetune", "choice", *words, "--dry-run")
    assert (report["columns"]["context"], report["columns"]["question"]) == ("sent1", "sent2")


def test_a_loss_of_no_rows_is_not_reported(road: Path, tmp_path: Path, capsys):
    pairs = [{"text_a": "red fox", "text_b": text, "score": n % 6} for n, text in enumerate(WORDS[:6] * 2)]
    train = write(tmp_path / "train.jsonl", pairs)
    dev = write(tmp_path / "dev.jsonl", [row for row in pairs if 1 <= row["score"] <= 3])
    words = ["--model", road / "run", "--train", train, "--dev", dev, "--out", tmp_path / "run", "--epochs", 1]
    assert main(["finetune", "embed", *map(str, words), "--set", "task.loss=in_batch_negatives"]) == 0
    shown = capsys.readouterr().out
    assert "spearman" in shown
    assert "None" not in shown


ASKED: dict[str, list[dict[str, Any]]] = {
    "classify": [{"text": text, "label": text.split()[0]} for text in ("red fox", "old tree runs by", "red stone")],
    "pair": [{"text_a": text, "text_b": "old tree", "label": text} for text in ("red fox", "old tree runs by")],
    "choice": [
        {"context": "by the tree", "question": "who?", "choices": ["fox", "old stone"], "answer": n} for n in (0, 1)
    ],
    "qa": [
        {"question": "who?", "context": "by the red fox", "answers": [{"text": "fox", "start": 11}]},
        {"question": "what runs?", "context": "tree by tree runs", "answers": [{"text": "tree", "start": 8}]},
    ],
    "tag": [{"tokens": WORDS[:n], "tags": ["X" if w == "fox" else "O" for w in WORDS[:n]]} for n in (4, 5, 9)],
}


@pytest.mark.parametrize("task", ASKED)
def test_readers_over_the_layers_of_a_frozen_encoder_in_every_task(road: Path, tmp_path: Path, capsys, task: str):
    """Their weights learn and no other; what they say of a row does not depend on the rows beside it."""
    readers = "task.task_encoder=TaskEncoder(cells=8, words=4, features=[input, output])"
    more = ("--freeze", "--features", "mix", "--set", readers)
    learn(capsys, task, road / "run", ASKED[task], tmp_path / task, *more)
    base, model = cw.load(road / "run").model.state_dict(), cw.load(tmp_path / task)
    for name, value in model.model.state_dict().items():
        if not name.startswith("heads."):
            assert value.equal(base[name]), name
    assert sum(f"heads.{task}.task_encoder." in name for name, _ in model.model.named_parameters()) > 8
    together = model.predict(ASKED[task])
    key = "score" if task == "qa" else "scores"
    for row, answer in zip(ASKED[task], together, strict=True):
        assert model.predict([row])[0][key] == pytest.approx(answer[key], abs=1e-5)


@pytest.mark.parametrize("task", ["embed", "seq2seq"])
def test_readers_where_there_is_no_head_are_refused(road: Path, tmp_path: Path, capsys, task: str):
    row = {"text_a": "red", "text_b": "old", "score": 1.0, "source": "red", "target": "old"}
    file = write(tmp_path / "rows.jsonl", [row, row | {"score": 0.0}])
    words = ("--model", road / "run", "--train", file, "--dev", file, "--out", tmp_path / "run")
    words = (*words, "--set", "task.task_encoder=TaskEncoder")
    assert "task.task_encoder" in refused(capsys, "finetune", task, *map(str, words))


def test_readers_have_no_class_elsewhere(road: Path, tmp_path: Path, capsys):
    given = [{"tokens": WORDS[:n], "tags": ["X" if w == "fox" else "O" for w in WORDS[:n]]} for n in (4, 5, 8, 10)]
    learn(capsys, "tag", road / "run", given, tmp_path / "tags", "--set", "task.task_encoder=TaskEncoder")
    message = refused(capsys, "export", str(tmp_path / "tags"), "--to", "hf", "--out", str(tmp_path / "hf"))
    assert "has no such head" in message
    assert not (tmp_path / "hf").exists()
