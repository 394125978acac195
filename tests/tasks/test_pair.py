"""Relations of two texts, from rows to answers."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import clozeworks as cw
from clozeworks.core.errors import InputError
from clozeworks.data.batches.labelled import make_batch
from clozeworks.data.tables.table import Table
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.inference.answers import predict_outputs, predict_records
from clozeworks.optim.settings import Finetune, Train
from clozeworks.recipe import Recipe, build
from clozeworks.tasks.pair import Pair
from clozeworks.tasks.template import InputTemplate
from clozeworks.train.finetune.recipe import make_finetune_recipe
from clozeworks.train.finetune.train import finetune_run

WORDS = ["fine", "sweet", "warm", "poor", "sour", "cold"]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train([" ".join(WORDS) + " the a is"] * 9, vocab=90)


def table(count: int = 96, seed: int = 0) -> Table:
    """Two words: are both of the first half?"""
    draw = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        a, b = draw.integers(0, 6, 2)
        label = "yes" if max(a, b) < 3 else "no"
        rows.append({"text_a": f"the {WORDS[a]}", "text_b": f"{WORDS[b]} is a", "label": label})
    return Table("rows", rows)


def recipe(tokenizer: Tokenizer, task: Pair, rows: Table, **tune: int) -> Recipe:
    base = cw.recipe("bert_tiny")
    base.encoder.vocab = tokenizer.size
    train = Train(learning_rate=1e-3, guard=None)
    return make_finetune_recipe(base, task, len(rows), Finetune(**{"epochs": 8, "batch_size": 8, **tune}), train)


def fresh(**more: object) -> Pair:
    return Pair(template=InputTemplate(length=32), **more)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("both", [False, True])
def test_it_learns_a_relation(tokenizer: Tokenizer, tmp_path: Path, both: bool):
    rows, dev = table(), table(24, 1)
    made = recipe(tokenizer, fresh(both=both).with_labels(rows), rows, epochs=10)
    done = finetune_run(made, tokenizer, rows, dev, tmp_path / "run", progress=False)
    assert done.heldout is not None
    assert done.heldout["accuracy"] > 0.9
    assert {"f1", "mcc", "f1_yes"} <= set(done.heldout)
    loaded = cw.load(tmp_path / "run")
    task = loaded.recipe.task
    assert task == made.task
    answers, loss = predict_records(loaded.model, task, dev, tokenizer, "full", truth=True)
    assert task.score(answers, dev)["accuracy"] > 0.9
    assert len(answers) == 24
    assert loss is not None


def test_it_learns_a_score(tokenizer: Tokenizer, tmp_path: Path):
    halves = [sum(word in WORDS[:3] for text in (row["text_a"], row["text_b"]) for word in text.split())
              for row in table().rows]  # fmt: skip
    data = Table("rows", [{**row, "label": None, "score": n} for row, n in zip(table().rows, halves, strict=True)])
    task = fresh().with_labels(data)
    assert (task.graded, task.metric, task.truth, task.outputs) == (True, "spearman", ("score",), 1)
    assert task.middle == pytest.approx(np.mean(halves))
    made = recipe(tokenizer, task, data, epochs=10)
    assert build(made).head("pair").out.bias.item() == pytest.approx(task.middle)
    done = finetune_run(made, tokenizer, data, data, tmp_path / "run", progress=False)
    assert done.heldout is not None
    assert done.heldout["spearman"] > 0.8
    answers, loss = predict_records(cw.load(tmp_path / "run").model, task, data, tokenizer, "full", truth=True)
    assert loss == pytest.approx(task.score(answers, data)["mse"], rel=1e-4)


def test_a_score_that_is_no_number_is_refused(tokenizer: Tokenizer):
    for given in ("high", float("nan"), None):
        rows = Table("a.csv", [{"text_a": "fine", "text_b": "warm", "score": given}], [2])
        with pytest.raises(InputError, match=r"a.csv, line 2: score .*; a number is needed"):
            fresh(problem="regression").examples(rows, tokenizer)


def test_both_orders_are_one_answer_to_the_bit(tokenizer: Tokenizer):
    rows = table(20)
    swapped = Table("rows", [{**row, "text_a": row["text_b"], "text_b": row["text_a"]} for row in rows.rows])
    for both in (False, True):
        task = fresh(both=both).with_labels(rows)
        model = build(recipe(tokenizer, task, rows)).eval()
        one, other = (predict_records(model, task, given, tokenizer, "full")[0] for given in (rows, swapped))
        assert (one == other) is both


def test_both_orders_are_summed_and_counted_once(tokenizer: Tokenizer):
    rows = table(12)
    task = fresh(both=True).with_labels(rows)
    model = build(recipe(tokenizer, task, rows)).eval()
    labelled = task.examples(rows, tokenizer)
    assert len(labelled) == 12
    assert len(labelled.examples) == 24
    (batch,) = make_batch(labelled, np.arange(12), "full", 0)
    with torch.no_grad():
        output = model(batch)
        head = model.head("pair")
        pooled = output.hidden.pooled
        sums = torch.stack([pooled[0::2], pooled[1::2]]).sum(0)
        logits = head.out(sums)
    truth = batch.example["class_label"][::2]
    mean = output.losses["pair"] / task.count(batch)
    torch.testing.assert_close(mean, F.cross_entropy(logits, truth))


@pytest.mark.parametrize("both", [False, True])
def test_rows_beside_it_change_no_answer(tokenizer: Tokenizer, both: bool):
    rows = table(20)
    task = fresh(both=both).with_labels(rows)
    model = build(recipe(tokenizer, task, rows)).eval()
    together, _ = predict_outputs(model, task, task.examples(rows, tokenizer), "full", 0)
    each = 1 + both
    for at in range(20):
        alone, _ = predict_outputs(model, task, task.examples(rows.some([at]), tokenizer), "full", 0)
        np.testing.assert_allclose(alone[0], together[each * at], atol=2e-6)


def test_the_longer_text_is_cut(tokenizer: Tokenizer):
    long = {"text_a": "the " * 60 + "fine", "text_b": "is a warm"}
    task = Pair(template=InputTemplate(length=24), both=True)
    examples = task.examples(Table("rows", [long]), tokenizer, truth=False).examples
    assert examples.lengths.tolist() == [24, 24]
    short = tokenizer.encode(["is a warm"])[0].ids.tolist()
    for at in (0, 24):
        ids = examples.tokens[at : at + 24].tolist()
        assert any(ids[n : n + len(short)] == short for n in range(24))
