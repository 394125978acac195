"""A recipe for a task: its frame, and the loss for words beside it."""

import itertools
from pathlib import Path

import numpy as np
import pytest
import tokenizers
import torch
from torch.nn import functional as F

import clozeworks as cw
from clozeworks.core.errors import InputError, RecipeError
from clozeworks.data.batches.labelled import make_batch
from clozeworks.data.tables.table import Table
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.exchange.grow import add_template_tokens
from clozeworks.exchange.templates import infer_template
from clozeworks.inference.answers import predict_records
from clozeworks.inference.text_encoder import TextEncoder
from clozeworks.objectives.losses.next_token import NextToken
from clozeworks.optim.settings import Finetune, Train
from clozeworks.recipe import Recipe, build
from clozeworks.tasks.choice import Choice
from clozeworks.tasks.classify import Classify
from clozeworks.tasks.pair import Pair
from clozeworks.tasks.summary import choose_summary
from clozeworks.tasks.template import InputTemplate
from clozeworks.train.finetune.batches import predict_words
from clozeworks.train.finetune.recipe import make_finetune_recipe
from clozeworks.train.finetune.train import finetune_run
from clozeworks.train.loop import accumulate

WORDS = ["fine", "sweet", "warm", "poor", "sour", "cold"]
ROWS = Table("rows", [{"text": f"{a} {b}", "label": str(a in WORDS[:3])} for a in WORDS for b in WORDS])
PAIRS = Table("rows", [{"text_a": a, "text_b": b, "label": str(a in WORDS[:3])} for a in WORDS for b in WORDS])


def bare() -> Tokenizer:
    """As one that was made for language modelling alone: no special token but for what is unknown."""
    model = tokenizers.models.WordLevel({"<unk>": 0, **{word: at for at, word in enumerate(WORDS, 1)}}, "<unk>")
    inner = tokenizers.Tokenizer(model)
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return Tokenizer(inner)


def one_way(vocab: int) -> Recipe:
    recipe = cw.recipe("gpt_mini")
    recipe.encoder.vocab, recipe.encoder.stack.depth, recipe.encoder.width = vocab, 2, 32
    recipe.encoder.stack.block_at(0).ffn.inner = 64
    return recipe


@pytest.fixture
def encoder() -> TextEncoder:
    recipe = one_way(7)
    return TextEncoder(build(recipe).eval(), bare(), recipe)


def test_a_model_without_specials_gets_fresh_ones(encoder: TextEncoder):
    template = infer_template(encoder.recipe, encoder.tokenizer)
    assert template == InputTemplate(("_start_",), ("_delimiter_",), ("_classify_",), "last", False, length=512)
    grown = add_template_tokens(encoder, template)
    assert [grown.tokenizer.id(name) for name in ("_start_", "_delimiter_", "_classify_")] == [7, 8, 9]
    assert grown.recipe.encoder.vocab == 10
    old, new = (each.model.encoder.embed.words.table.weight.detach() for each in (encoder, grown))
    assert torch.equal(new[:7], old)
    assert 0.01 < float(new[7:].std()) < 0.03
    assert len(torch.unique(new[7:], dim=0)) == 3
    assert add_template_tokens(grown, template) is grown
    plain = grown.tokenizer.encode(["_start_ fine"])[0].ids.tolist()
    assert not {7, 8, 9} & set(plain)
    assert infer_template(grown.recipe, grown.tokenizer) == template


def test_ours_need_none():
    tokenizer = Tokenizer.train([" ".join(WORDS)], vocab=80)
    recipe = one_way(tokenizer.size)
    template = infer_template(recipe, tokenizer)
    assert template == InputTemplate(("[CLS]",), ("[MASK]",), ("[SEP]",), "last", False, length=512)
    encoder = TextEncoder(build(recipe), tokenizer, recipe)
    assert add_template_tokens(encoder, template) is encoder


def test_the_published_forms(encoder: TextEncoder):
    template = infer_template(encoder.recipe, encoder.tokenizer)
    tokenizer = add_template_tokens(encoder, template).tokenizer

    def written(labelled) -> list[str]:
        tokens = [tokenizer.token(token) for token in labelled.examples.tokens]
        first = labelled.examples.first
        return [" ".join(tokens[a:b]) for a, b in itertools.pairwise(first)]

    one = Classify(template=template).examples(Table("", [{"text": "fine sour"}]), tokenizer, truth=False)
    assert written(one) == ["_start_ fine sour _classify_"]
    pair = Table("", [{"text_a": "warm", "text_b": "cold"}])
    assert written(Pair(template=template).examples(pair, tokenizer, False)) == [
        "_start_ warm _delimiter_ cold _classify_"
    ]
    assert written(Pair(template=template, both=True).examples(pair, tokenizer, False)) == [
        "_start_ warm _delimiter_ cold _classify_",
        "_start_ cold _delimiter_ warm _classify_",
    ]
    question = Table("", [{"context": "fine warm", "question": "poor", "choices": ["sour", "cold"]}])
    assert written(Choice(template=template, asked="first").examples(question, tokenizer, False)) == [
        "_start_ fine warm poor _delimiter_ sour _classify_",
        "_start_ fine warm poor _delimiter_ cold _classify_",
    ]


def test_words_are_predicted_beside_the_task(encoder: TextEncoder):
    """The mean over all tokens of the step that another follows, whatever micro-batch they are in."""
    template = infer_template(encoder.recipe, encoder.tokenizer)
    grown = add_template_tokens(encoder, template)
    task = Pair(template=template, summary=choose_summary(grown.recipe, template, False), both=True).with_labels(PAIRS)
    recipe = make_finetune_recipe(grown.recipe, task, len(PAIRS), lm_weight=0.5)
    assert recipe.objective.losses == (task, NextToken(weight=0.5))
    model = build(recipe).eval()
    labelled = task.examples(PAIRS, grown.tokenizer)
    predict_words(labelled)
    examples = labelled.examples
    micro = make_batch(labelled, np.arange(len(PAIRS)), "causal", 0, most=256)
    assert len(micro) > 1
    means = accumulate(model, micro, [None] * len(micro))
    ours = TextEncoder(model, grown.tokenizer, recipe)
    total, count = torch.zeros(()), 0
    for a, b in itertools.pairwise(examples.first):
        ids = torch.from_numpy(examples.tokens[a:b].astype(np.int64))
        logits = ours.forward(ids[None]).logits[0, :-1]
        total, count = total + F.cross_entropy(logits, ids[1:], reduction="sum"), count + len(ids) - 1
    torch.testing.assert_close(means["next_token"], total / count, rtol=1e-5, atol=1e-6)
    assert sum(model.count(batch)["next_token"] for batch in micro) == count


@pytest.mark.parametrize("auxiliary", [pytest.param(0.0, marks=pytest.mark.slow), 0.5])
def test_it_learns_with_tokens_of_its_own(encoder: TextEncoder, tmp_path: Path, auxiliary: float):
    template = infer_template(encoder.recipe, encoder.tokenizer)
    grown = add_template_tokens(encoder, template)
    task = Classify(template=template, summary=choose_summary(grown.recipe, template, False)).with_labels(ROWS)
    tune, train = Finetune(epochs=30, batch_size=12), Train(learning_rate=3e-3, guard=None)
    recipe = make_finetune_recipe(grown.recipe, task, len(ROWS), tune, train, lm_weight=auxiliary)
    done = finetune_run(recipe, grown.tokenizer, ROWS, ROWS, tmp_path / "run", source=grown, progress=False)
    assert done.heldout["accuracy"] == 1.0
    again = cw.load(tmp_path / "run")
    answers, _ = predict_records(again.model, again.recipe.task, ROWS, again.tokenizer, "causal")
    assert again.recipe.task.score(answers, ROWS)["accuracy"] == 1.0
    assert (again.language_head is not None) == bool(auxiliary)


def test_what_reads_both_ways_predicts_no_next_word():
    recipe = cw.recipe("bert_tiny")
    with pytest.raises(RecipeError, match="next tokens are predicted by models that read one way"):
        make_finetune_recipe(recipe, Classify().with_labels(ROWS), len(ROWS), lm_weight=0.5)


def test_a_token_has_one_label(encoder: TextEncoder):
    template = infer_template(encoder.recipe, encoder.tokenizer)
    labelled = Classify(template=template).examples(ROWS, add_template_tokens(encoder, template).tokenizer, truth=False)
    labelled.examples.labels[3] = 1
    with pytest.raises(InputError, match="the task has labels for tokens"):
        predict_words(labelled)


def test_what_reads_each_way_alone_is_summed_up_over_all_its_words():
    elmo = cw.recipe("elmo_mini")
    assert choose_summary(elmo, InputTemplate(), pooled=False).place == "concat"
    assert choose_summary(cw.recipe("bert_tiny"), InputTemplate(), pooled=True).place == "first"


def test_how_fresh_weights_began_is_left_behind():
    elmo = cw.recipe("elmo_mini")
    assert elmo.start
    task = Classify(labels=("a", "b"), summary=choose_summary(elmo, InputTemplate(), pooled=False))
    assert make_finetune_recipe(elmo, task, 10).start == ()
