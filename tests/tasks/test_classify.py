"""Classes of texts, from rows to answers."""

import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import clozeworks as cw
from clozeworks.core.errors import InputError
from clozeworks.data.batches.labelled import make_batch
from clozeworks.data.tables import read_table
from clozeworks.data.tables.table import Table
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.inference.answers import predict_outputs, predict_records
from clozeworks.optim.settings import Finetune, Train
from clozeworks.recipe import Recipe, build
from clozeworks.tasks.classify import Classify
from clozeworks.tasks.layer_selection import JoinLayers, Reading, ScalarMix, SumLayers
from clozeworks.tasks.summary import Summary
from clozeworks.tasks.template import InputTemplate
from clozeworks.train.finetune.recipe import make_finetune_recipe
from clozeworks.train.finetune.train import finetune_run

WORDS = {"good": ["fine", "sweet", "warm"], "bad": ["poor", "sour", "cold"]}


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train([" ".join(word for words in WORDS.values() for word in words) + " the a is"], vocab=80)


def table(count: int = 48, seed: int = 0) -> Table:
    draw = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        label = str(draw.choice(["good", "bad"]))
        words = [str(draw.choice(WORDS[label])), *["the", "a", "is"][: draw.integers(0, 4)]]
        rows.append({"text": " ".join(draw.permutation(words)), "label": label})
    return Table("rows", rows)


def recipe(tokenizer: Tokenizer, task: Classify, rows: Table, **tune: int) -> Recipe:
    base = cw.recipe("bert_tiny")
    base.encoder.vocab = tokenizer.size
    train = Train(learning_rate=3e-3, guard=None)
    return make_finetune_recipe(base, task, len(rows), Finetune(**{"epochs": 8, "batch_size": 8, **tune}), train)


def fresh(**more: object) -> Classify:
    return Classify(template=InputTemplate(length=32), **more)  # pyright: ignore[reportArgumentType]


def test_it_learns_and_the_directory_is_a_model(tokenizer: Tokenizer, tmp_path: Path):
    rows, dev = table(), table(24, 1)
    made = recipe(tokenizer, fresh().with_labels(rows), rows)
    done = finetune_run(made, tokenizer, rows, dev, tmp_path / "run", progress=False)
    assert done.finished
    assert done.heldout is not None
    assert done.heldout["accuracy"] == 1.0
    loaded = cw.load(tmp_path / "run")
    task = loaded.recipe.task
    assert task is not None
    assert task.labels == ("bad", "good")
    answers, loss = predict_records(loaded.model, task, dev, tokenizer, "full", truth=True)
    assert [one["label"] for one in answers] == [row["label"] for row in dev.rows]
    assert loss is not None
    assert sum(answers[0]["scores"].values()) == pytest.approx(1)


def test_a_resumed_run_ends_with_the_same_weights(tokenizer: Tokenizer, tmp_path: Path):
    rows = table()
    made = recipe(tokenizer, fresh().with_labels(rows), rows, epochs=2)
    whole = finetune_run(made, tokenizer, rows, rows, tmp_path / "whole", progress=False)

    class Stop:
        def write(self, row: dict) -> None:
            if row.get("step") == 7:
                os.kill(os.getpid(), signal.SIGTERM)

        def close(self) -> None: ...

    made.train.log_every = 1
    cut = finetune_run(made, tokenizer, rows, rows, tmp_path / "cut", progress=False, writers=[Stop()])
    assert not cut.finished
    resumed = finetune_run(made, tokenizer, rows, rows, tmp_path / "cut", progress=False)
    assert resumed.resumed == cut.step == 7
    for file in ("model.safetensors", "optimizer.safetensors"):
        assert (whole.checkpoint / file).read_bytes() == (resumed.checkpoint / file).read_bytes()


def test_early_stopping_keeps_the_best(tokenizer: Tokenizer, tmp_path: Path):
    rows = table()
    made = recipe(tokenizer, fresh().with_labels(rows), rows, epochs=30, patience=2)
    done = finetune_run(made, tokenizer, rows, table(24, 1), tmp_path / "run", progress=False)
    assert done.finished
    assert done.stopped_early
    assert done.best is not None
    assert done.step == done.best + 2 * made.train.evaluate_every
    again = finetune_run(made, tokenizer, rows, table(24, 1), tmp_path / "run", progress=False)
    assert (again.step, again.best) == (done.step, done.best)


@pytest.mark.parametrize(
    "reading", [Reading(), SumLayers(2), JoinLayers(2), ScalarMix(2)], ids=lambda r: type(r).__name__
)
@pytest.mark.parametrize("place", ["first", "last", "mean"])
def test_a_frozen_encoder_stays_as_it_is(tokenizer: Tokenizer, tmp_path: Path, reading: Reading, place):
    rows = table(16)
    task = fresh(reading=reading, summary=Summary(place, "own")).with_labels(rows)
    made = recipe(tokenizer, task, rows, epochs=2)
    before = build(made)
    made.finetune = Finetune(epochs=2, batch_size=8, freeze=True)
    finetune_run(made, tokenizer, rows, None, tmp_path / "run", progress=False)
    after = cw.load(tmp_path / "run").model
    changed = {
        name for (name, a), b in zip(before.named_parameters(), after.parameters(), strict=True) if not a.equal(b)
    }
    assert changed
    assert all(name.startswith("heads.classify.") for name in changed)
    if isinstance(reading, ScalarMix):
        assert "heads.classify.reading.weights" in changed


def test_rows_beside_it_change_no_answer(tokenizer: Tokenizer):
    rows = table(20)
    task = fresh().with_labels(rows)
    model = build(recipe(tokenizer, task, rows)).eval()
    together, _ = predict_outputs(model, task, task.examples(rows, tokenizer), "full", 0)
    for at in range(20):
        alone, _ = predict_outputs(model, task, task.examples(rows.some([at]), tokenizer), "full", 0)
        np.testing.assert_allclose(alone[0], together[at], atol=2e-6)


def test_micro_batches_change_nothing(tokenizer: Tokenizer):
    rows = table(40)
    task = fresh().with_labels(rows)
    labelled = task.examples(rows, tokenizer)
    whole = make_batch(labelled, np.arange(40), "full", 0)
    cut = make_batch(labelled, np.arange(40), "full", 0, most=256)
    assert len(whole) == 1
    assert len(cut) >= 1
    assert sum((batch.index for batch in cut), ()) == whole[0].index
    assert torch.equal(torch.cat([b.example["class_label"] for b in cut]), whole[0].example["class_label"])


def loss_of(rows: Table, tokenizer: Tokenizer) -> tuple[float, torch.Tensor]:
    """The mean loss of all rows with fresh weights, and the logits of each."""
    task = fresh().with_labels(rows)
    assert task.labels == ("bad", "good")
    model = build(recipe(tokenizer, task, rows)).eval()
    logits, loss = predict_outputs(model, task, task.examples(rows, tokenizer), "full", 0)
    assert loss is not None
    return loss, torch.from_numpy(np.stack(logits))


def test_scores_of_a_teacher_are_learned(tokenizer: Tokenizer):
    rows = table(12)
    hard, logits = loss_of(rows, tokenizer)
    sure = [row | {"scores": {row["label"]: 1.0}} for row in rows.rows]
    assert loss_of(Table("rows", sure), tokenizer)[0] == pytest.approx(hard, rel=1e-5)
    some = [rows.rows[0], *(row | {"scores": {"good": 0.7, "bad": 0.3}} for row in rows.rows[1:])]
    targets = torch.tensor([[0.3, 0.7]] * 12)
    targets[0] = torch.tensor([0.0, 1.0] if rows.rows[0]["label"] == "good" else [1.0, 0.0])
    expected = -(targets * logits.log_softmax(-1)).sum(-1).mean()
    assert loss_of(Table("rows", some), tokenizer)[0] == pytest.approx(expected.item(), rel=1e-4)


def test_a_label_that_only_a_teacher_names_is_one(tokenizer: Tokenizer):
    rows = [*table(6).rows, {"text": "the", "label": "good", "scores": {"good": 0.6, "dull": 0.4}}]
    assert fresh().with_labels(Table("rows", rows)).labels == ("bad", "dull", "good")
    with pytest.raises(
        InputError, match=r"no row of class dull; classes are balanced by their rows; .*leave balance out"
    ):
        fresh(balance=True).with_labels(Table("rows", rows))


def test_scores_take_the_place_of_the_label(tokenizer: Tokenizer):
    rows = Table("rows", [*table(6).rows, {"text": "the", "label": "good", "scores": {"bad": 1.0}}])
    targets = fresh().with_labels(rows).examples(rows, tokenizer).examples.fields["class_label"]
    assert targets[-1].tolist() == [1.0, 0.0]


def test_scores_of_several_labels_are_chances_of_each(tokenizer: Tokenizer):
    several = [{"text": "the", "label": ["good"], "scores": {"good": 0.9, "bad": 0.4}}, {"text": "a", "label": []}]
    task = fresh().with_labels(data := Table("rows", several))
    targets = task.examples(data, tokenizer).examples.fields["class_label"]
    np.testing.assert_allclose(targets, [[0.4, 0.9], [0, 0]], rtol=1e-6)


def test_what_predict_writes_can_be_learned_from(tokenizer: Tokenizer, tmp_path: Path):
    rows = table(24)
    made = recipe(tokenizer, fresh().with_labels(rows), rows, epochs=4)
    finetune_run(made, tokenizer, rows, None, tmp_path / "teacher", progress=False)
    teacher = cw.load(tmp_path / "teacher")
    answers = teacher.predict([row["text"] for row in rows.rows])
    soft = [{"text": row["text"]} | answer for row, answer in zip(rows.rows, answers, strict=True)]
    (tmp_path / "soft.jsonl").write_text("".join(json.dumps(row) + "\n" for row in soft))
    how = {"epochs": 2, "progress": False, "dev_share": 0}
    student = cw.finetune("classify", teacher, tmp_path / "soft.jsonl", out=tmp_path / "student", **how)
    assert "24 of 24 rows bring scores along and are learned as sure as these" in student.notes
    task = student.model.recipe.task
    assert task is not None
    assert task.labels == ("bad", "good")
    learned = student.model.predict([row["text"] for row in rows.rows])
    assert [each["label"] for each in learned] == [each["label"] for each in answers]


@pytest.mark.parametrize(
    "scores", [{"good": 1.5}, {"good": -0.1}, {"good": "much"}, {"good": True}, {"good": 0, "bad": 0}]
)
def test_scores_that_are_no_probabilities_are_refused(tokenizer: Tokenizer, tmp_path: Path, scores: dict):
    rows = [*table(6).rows, {"text": "the", "label": "good", "scores": scores}]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(InputError, match=r"rows\.jsonl.*7.*column 'scores'.*mend the row"):
        read_table(tmp_path / "rows.jsonl", ("text",), ("label",), {}, maybe=("scores",))


@pytest.mark.slow
def test_several_labels(tokenizer: Tokenizer, tmp_path: Path):
    draw = np.random.default_rng(0)
    rows = []
    for _ in range(60):
        labels = [name for name in WORDS if draw.random() < 0.5]
        rows.append({"text": " ".join(["the", *(str(draw.choice(WORDS[name])) for name in labels)]), "label": labels})
    data = Table("rows", rows)
    task = fresh().with_labels(data)
    assert task.many
    made = recipe(tokenizer, task, data, epochs=24)
    made.train.learning_rate = 1e-3
    done = finetune_run(made, tokenizer, data, data, tmp_path / "run", progress=False)
    assert done.heldout is not None
    assert done.heldout["accuracy"] > 0.9
    assert set(done.heldout) == {"loss", "accuracy", "f1", "f1_micro"}


def test_balanced_classes_have_the_same_say(tokenizer: Tokenizer):
    rows = table(40)
    rows = rows.some([at for at, row in enumerate(rows.rows) if row["label"] == "good" or at % 4 == 0])
    counts = {label: sum(row["label"] == label for row in rows.rows) for label in WORDS}
    task = fresh(balance=True).with_labels(rows)
    assert task.weights == tuple(len(rows) / (2 * counts[label]) for label in task.labels)
    model = build(recipe(tokenizer, task, rows)).eval()
    assert not any("weights" in name for name in model.state_dict())
    labelled = task.examples(rows, tokenizer)
    values, loss = predict_outputs(model, task, labelled, "full", 0)
    truth = torch.from_numpy(labelled.examples.fields["class_label"])
    each = F.cross_entropy(torch.from_numpy(np.stack(values)), truth, reduction="none")
    assert loss == pytest.approx(float(torch.stack([each[truth == k].mean() for k in (0, 1)]).mean()), rel=1e-5)
    several = Table("rows", [{"text": "fine", "label": ["good"]}, {"text": "poor", "label": []}])
    with pytest.raises(InputError, match="classes are balanced where a text is of one"):
        fresh(balance=True).with_labels(several)


def test_figures_by_their_usual_names():
    rows = Table("rows", [{"text": "", "label": label} for label in ("no", "no", "yes", "yes", "yes")])
    task = fresh(labels=("no", "yes"))
    metrics = task.score([{"label": label} for label in ("no", "yes", "yes", "yes", "no")], rows)
    assert metrics == pytest.approx({"accuracy": 0.6, "f1": 7 / 12, "mcc": 1 / 6, "f1_yes": 2 / 3})


def test_a_text_may_have_a_score(tokenizer: Tokenizer):
    rows = Table("rows", [{"text": "fine warm", "score": 2}, {"text": "cold", "score": "0.5"}])
    task = fresh().with_labels(rows)
    model = build(recipe(tokenizer, task, rows)).eval()
    answers, loss = predict_records(model, task, rows, tokenizer, "full", truth=True)
    wrong = [answers[at]["score"] - float(row["score"]) for at, row in enumerate(rows.rows)]
    assert loss == pytest.approx(float(np.mean(np.square(wrong))), rel=1e-5)
    assert task.score(answers, rows)["mse"] == pytest.approx(loss, rel=1e-5)


def test_bad_rows_are_told_apart(tokenizer: Tokenizer):
    one = Table("one.csv", [{"text": "fine", "label": "good"}, {"text": "warm", "label": "good"}], [2, 3])
    with pytest.raises(InputError, match="one class only, good"):
        fresh().with_labels(one)
    task = fresh().with_labels(table())
    strange = Table("dev.csv", [{"text": "fine", "label": "good"}, {"text": "warm", "label": "odd"}], [2, 3])
    with pytest.raises(InputError, match=r"dev.csv, line 3: label 'odd'; the model knows bad, good"):
        task.examples(strange, tokenizer)


def test_a_label_for_each_row_is_taken_for_a_slip():
    table = Table("rows.jsonl", [{"text": "a", "label": f"id {n}"} for n in range(1500)], list(range(1500)))
    with pytest.raises(InputError, match="1,500 labels for 1,500 rows; a label needs several rows"):
        Classify().with_labels(table)
    table.rows.extend(table.rows * 2)
    assert len(Classify().with_labels(table).labels) == 1500
