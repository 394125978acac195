"""Every family goes through the tasks of whole texts, its texts between the special tokens that it knows them."""

from pathlib import Path

import numpy as np
import pytest
import torch

import clozeworks as cw
from clozeworks.data.tables.table import Table
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.exchange.templates import infer_template
from clozeworks.inference.answers import predict_outputs, predict_records
from clozeworks.optim.settings import Finetune, Train
from clozeworks.recipe import Recipe, build
from clozeworks.tasks.choice import Choice
from clozeworks.tasks.classify import Classify
from clozeworks.tasks.pair import Pair
from clozeworks.tasks.summary import choose_summary
from clozeworks.tasks.task import Task
from clozeworks.train.finetune.recipe import make_finetune_recipe
from clozeworks.train.finetune.train import finetune_run

WORDS = ["fine", "sweet", "warm", "poor", "sour", "cold"]
# Of each family: its recipe, its kind of tokenizer, and two texts, a and b, as it reads them, with their segments.
FAMILIES = {
    "bert_tiny": ("wordpiece", "[CLS] a [SEP] b [SEP]", "00011"),
    "roberta_mini": ("bytes", "<s> a </s> </s> b </s>", "000000"),
    "albert_mini": ("unigram", "[CLS] a [SEP] b [SEP]", "00011"),
    "spanbert_mini": ("wordpiece", "[CLS] a [SEP] b [SEP]", "00011"),
    "ernie_basic_mini": ("wordpiece", "[CLS] a [SEP] b [SEP]", "00011"),
    "distilbert_mini": ("wordpiece", "[CLS] a [SEP] b [SEP]", "00000"),
    "gpt_mini": ("bpe", "<s> a <mask> b </s>", "00000"),
    "xlnet_mini": ("unigram", "[CLS] a [SEP] b [SEP]", "00011"),
    "xlnet_mini_memory": ("unigram", "a [SEP] b [SEP] [CLS]", "00112"),
    "longformer_mini": ("bytes", "<s> a </s> </s> b </s>", "000000"),
    "reformer_mini": ("bpe", "<s> a <mask> b </s>", "00000"),
    "transformer_xl_mini": ("words", "[CLS] a [MASK] b [SEP]", "00000"),
    "adaptive_span_mini": ("words", "[CLS] a [MASK] b [SEP]", "00000"),
    "lite_transformer_lm_mini": ("words", "[CLS] a [MASK] b [SEP]", "00000"),
}
TEXTS = [(f"a {first}", f"{second} b a") for first in WORDS for second in WORDS[:3]]
ROWS = {
    "classify": Table("rows", [{"text": a, "label": "x" if n % 2 else "y"} for n, (a, _) in enumerate(TEXTS)]),
    "pair": Table("rows", [{"text_a": a, "text_b": b, "score": float(n % 4)} for n, (a, b) in enumerate(TEXTS)]),
    "choice": Table(
        "rows", [{"context": a, "question": "b", "choices": [b, a, "cold"], "answer": 1} for a, b in TEXTS]
    ),
}
TASKS: dict[str, type[Classify | Choice]] = {"classify": Classify, "pair": Pair, "choice": Choice}


def known(family: str) -> tuple[Recipe, Tokenizer]:
    tokenizer = Tokenizer.train([" ".join(WORDS) + " a b"] * 9, FAMILIES[family][0], vocab=300)
    recipe = cw.recipe(family)
    recipe.encoder.vocab, recipe.encoder.stack.depth = tokenizer.size, 2
    return recipe, tokenizer


def made(name: str, recipe: Recipe, tokenizer: Tokenizer) -> Task:
    template = infer_template(recipe, tokenizer)
    return TASKS[name](template=template, summary=choose_summary(recipe, template, recipe.encoder.pooler is not None))


@pytest.mark.parametrize("family", FAMILIES)
def test_two_texts_as_it_reads_them(family: str):
    recipe, tokenizer = known(family)
    rows = Table("rows", [{"text_a": "a", "text_b": "b"}])
    examples = made("pair", recipe, tokenizer).examples(rows, tokenizer, truth=False).examples
    written = " ".join(tokenizer.token(token).strip("▁Ġ").removesuffix("</w>") for token in examples.tokens)
    assert written == FAMILIES[family][1]
    assert "".join(map(str, examples.segment)) == FAMILIES[family][2]
    if family.startswith("longformer"):
        assert examples.marked is not None
        assert examples.marked.tolist() == [True] + [False] * 5


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("family", FAMILIES)
def test_it_is_trained_and_answers(family: str, name: str, tmp_path: Path):
    recipe, tokenizer = known(family)
    rows = ROWS[name]
    task = made(name, recipe, tokenizer).with_labels(rows)
    run = make_finetune_recipe(
        recipe, task, len(rows), Finetune(epochs=1, batch_size=9), Train(learning_rate=1e-3, guard=None)
    )
    done = finetune_run(run, tokenizer, rows, rows, tmp_path / "run", progress=False)
    assert done.finished
    loaded = cw.load(tmp_path / "run")
    assert loaded.recipe.task == task
    answers, loss = predict_records(loaded.model, task, rows, tokenizer, recipe.reading, truth=True)
    assert loss == pytest.approx(done.heldout["loss"], rel=1e-4)
    assert task.score(answers, rows)[task.metric] == pytest.approx(done.heldout[task.metric])
    before = build(run).state_dict()
    still = [key for key, value in loaded.model.state_dict().items() if torch.equal(value, before[key])]
    assert not [key for key in still if key.startswith("heads.")]


@pytest.mark.parametrize("family", FAMILIES)
def test_rows_beside_it_change_no_answer(family: str):
    recipe, tokenizer = known(family)
    rows = ROWS["pair"]
    task = made("pair", recipe, tokenizer).with_labels(rows)
    model = build(make_finetune_recipe(recipe, task, len(rows))).eval()
    together, _ = predict_outputs(model, task, task.examples(rows, tokenizer), recipe.reading, tokenizer.filler)
    for at in range(0, len(rows), 5):
        alone, _ = predict_outputs(
            model, task, task.examples(rows.some([at]), tokenizer), recipe.reading, tokenizer.filler
        )
        np.testing.assert_allclose(alone[0], together[at], atol=5e-6)
