"""The right one of several options, from rows to answers: beside the softmax over its options."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import clozeworks as cw
from clozeworks.core.batch import Hidden
from clozeworks.core.errors import InputError, RecipeError
from clozeworks.data.batches.labelled import make_batch
from clozeworks.data.shards.prepare import prepare
from clozeworks.data.tables.table import Table
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.inference.answers import predict_outputs, predict_records
from clozeworks.nn.embed import Embed
from clozeworks.optim.settings import Finetune, Train
from clozeworks.recipe import Recipe, build
from clozeworks.tasks.choice import Choice
from clozeworks.tasks.summary import Summary
from clozeworks.tasks.template import InputTemplate
from clozeworks.train.finetune.recipe import make_finetune_recipe
from clozeworks.train.finetune.train import finetune_run
from clozeworks.train.pretrain import pretrain

WORDS = ["fine", "sweet", "warm", "poor", "sour", "cold"]
WIDTH = 8


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train([" ".join(WORDS) + " the a is which"] * 9, vocab=90)


def table(count: int = 48, seed: int = 0) -> Table:
    """Of two to four options one is of the first half of the words."""
    draw = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        wrong = [str(draw.choice(WORDS[3:])) for _ in range(draw.integers(1, 4))]
        answer = int(draw.integers(0, len(wrong) + 1))
        choices = [*wrong[:answer], str(draw.choice(WORDS[:3])), *wrong[answer:]]
        rows.append({"context": "the a is", "question": "which", "choices": choices, "answer": answer})
    return Table("rows", rows)


def recipe(tokenizer: Tokenizer, task: Choice, rows: Table, **tune: int) -> Recipe:
    base = cw.recipe("bert_tiny")
    base.encoder.vocab = tokenizer.size
    train = Train(learning_rate=1e-3, guard=None)
    return make_finetune_recipe(base, task, len(rows), Finetune(**{"epochs": 8, "batch_size": 8, **tune}), train)


def fresh(**more: object) -> Choice:
    return Choice(template=InputTemplate(length=32), **more)  # pyright: ignore[reportArgumentType]


def test_it_learns(tokenizer: Tokenizer, tmp_path: Path):
    rows, dev = table(), table(24, 1)
    made = recipe(tokenizer, fresh().with_labels(rows), rows)
    done = finetune_run(made, tokenizer, rows, dev, tmp_path / "run", progress=False)
    assert done.heldout is not None
    assert done.heldout["accuracy"] > 0.9
    loaded = cw.load(tmp_path / "run")
    task = loaded.recipe.task
    assert task == made.task
    answers, loss = predict_records(loaded.model, task, dev, tokenizer, "full", truth=True)
    assert task.score(answers, dev)["accuracy"] > 0.9
    assert loss is not None
    for one, row in zip(answers, dev.rows, strict=True):
        assert sum(one["scores"]) == pytest.approx(1)
        assert one["choice"] == row["choices"][one["answer"]]


def test_it_is_the_cross_entropy_of_each_question(tokenizer: Tokenizer):
    rows = table(12)
    task = fresh(summary=Summary("last", None))
    labelled = task.examples(rows, tokenizer)
    (batch,) = make_batch(labelled, np.arange(12), "full", 0)
    torch.manual_seed(0)
    x = torch.randn(*batch.tokens.shape, WIDTH, requires_grad=True)
    head = task.build(WIDTH, Embed().build(WIDTH, 90))
    loss, metrics = head(Hidden(x), batch)
    scores = head.logits(x.flatten(0, 1)[batch.lasts])
    expected, right, at = torch.zeros(()), 0, 0
    for unit in batch.index:
        row = rows.rows[unit]
        one = scores[at : at + len(row["choices"])]
        expected = expected + F.cross_entropy(one[None], torch.tensor([row["answer"]]))
        right, at = right + (int(one.argmax()) == row["answer"]), at + len(one)
    assert at == len(scores)
    torch.testing.assert_close(loss, expected)
    assert metrics["choice_accuracy"].item() == right
    assert task.count(batch) == 12
    leaves = [x, *head.parameters()]
    for mine, other in zip(torch.autograd.grad(loss, leaves), torch.autograd.grad(expected, leaves), strict=True):
        torch.testing.assert_close(mine, other)
    assert head(Hidden(x * 1e4), batch)[0].isfinite()


def test_options_never_part(tokenizer: Tokenizer):
    rows = table(40)
    labelled = fresh().examples(rows, tokenizer)
    cut = make_batch(labelled, np.arange(40), "full", 0, most=256)
    assert len(cut) > 1
    for batch in cut:
        assert batch.example["choice_right"].sum() == len(batch.index)
        counts = torch.bincount(batch.example["unit"]).tolist()
        assert counts == [len(rows.rows[unit]["choices"]) for unit in batch.index]
    assert sorted(unit for batch in cut for unit in batch.index) == list(range(40))


def test_rows_beside_it_change_no_answer(tokenizer: Tokenizer):
    rows = table(16)
    task = fresh()
    model = build(recipe(tokenizer, task, rows)).eval()
    labelled = task.examples(rows, tokenizer)
    together, _ = predict_outputs(model, task, labelled, "full", 0)
    for at in range(16):
        alone, _ = predict_outputs(model, task, task.examples(rows.some([at]), tokenizer), "full", 0)
        mine = together[labelled.first[at] : labelled.first[at + 1]]
        np.testing.assert_allclose(np.stack(alone), np.stack(mine), atol=2e-6)


@pytest.mark.parametrize("asked", ["first", "second"])
def test_the_context_is_cut_and_the_question_never(tokenizer: Tokenizer, asked):
    row = {"context": "the " * 50, "question": "which is", "choices": ["fine", " ".join(["a"] * 18)], "answer": 0}
    template = InputTemplate(("[CLS]",), ("[MASK]",), ("[SEP]",), length=30)
    task = Choice(template=template, asked=asked)
    for words in (50, 2):
        row["context"] = " ".join(["the"] * words)
        examples = task.examples(Table("rows", [row]), tokenizer).examples
        written = [
            [tokenizer.token(token) for token in examples.tokens[begin:end]]
            for begin, end in zip(examples.first, examples.first[1:], strict=False)
        ]
        for option, tokens in zip(row["choices"], written, strict=True):
            text = tokenizer.decode([tokenizer.id(token) for token in tokens], skip_specials=False)
            assert len(tokens) == 30 or words == 2
            tail = f"which is [MASK] {option} [SEP]" if asked == "first" else f"[MASK] which is {option} [SEP]"
            assert text.endswith(tail)
            assert text.startswith("[CLS] the the ")


def test_a_batch_without_choices_passes_it_by(tokenizer: Tokenizer):
    r = cw.recipe("gpt_mini")
    r.encoder.vocab, r.encoder.stack.depth = 90, 1
    task = fresh(summary=Summary("last", None))
    r.objective.losses += (task,)
    model = build(r)
    (batch,) = make_batch(task.examples(table(2), tokenizer), np.arange(2), "causal", 0)
    batch.targets = batch.labels = torch.arange(5)
    assert set(model(batch).losses) == {"next_token", "choice"}
    assert model.count(batch) == {"next_token": 5, "choice": 2}
    batch.example = {}
    assert set(model(batch).losses) == {"next_token"}
    assert model.count(batch) == {"next_token": 5, "choice": 0}


def test_text_alone_cannot_train_it(tmp_path: Path):
    prepare([{"text": "a small text of words and words"}] * 40, tmp_path / "data", vocab=100, heldout=0)
    r = cw.recipe("gpt_mini")
    r.objective.losses += (fresh(summary=Summary("last", None)),)
    with pytest.raises(RecipeError, match="it reads labelled rows, and text has none"):
        pretrain(r, [(tmp_path / "data", 1.0)], tmp_path / "run")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"choices": ["fine"], "answer": 0}, r"a.csv, line 2: choices \['fine'\]; a list of two options"),
        ({"choices": "fine", "answer": 0}, r"a.csv, line 2: choices 'fine'; a list of two options"),
        ({"choices": ["fine", "sour"], "answer": 2}, "answer 2; the number of an option, 0 to 1, is needed"),
        ({"choices": ["fine", "sour"], "answer": "b"}, "answer 'b'; the number of an option, 0 to 1, is needed"),
    ],
)
def test_bad_rows_are_refused(tokenizer: Tokenizer, row, message):
    with pytest.raises(InputError, match=message):
        fresh().examples(Table("a.csv", [{"context": "the", "question": "which", **row}], [2]), tokenizer)
