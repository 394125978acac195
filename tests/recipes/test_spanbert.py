"""What SpanBERT changes of BERT, and the masks it is compared with."""

import json

import pytest

import clozeworks as cw
from clozeworks.cli import named
from clozeworks.data.shards.prepare import prepare
from clozeworks.objectives.losses.span_boundary import SpanBoundary
from clozeworks.objectives.mask import MaskPhrases, MaskSpans, MaskTokens, MaskWholeWords
from clozeworks.recipes import recipe, spanbert
from clozeworks.train.pretrain import pretrain
from clozeworks.train.resources.cost import HIDDEN, measure_cost
from tests.train.conftest import documents

ROWS = {  # of table 6
    "MaskTokens": MaskTokens(),
    "MaskWholeWords": MaskWholeWords(),
    "MaskPhrases(stage=entity, share=0.5)": MaskPhrases(stage="entity", share=0.5),
    "MaskPhrases(stage=phrase, share=0.5)": MaskPhrases(stage="phrase", share=0.5),
    "MaskSpans": MaskSpans(),
}


def test_it_is_bert_changed_where_the_paper_says():
    assert set(cw.diff("bert_base", "spanbert_base")) == {
        "name",
        "encoder.vocab",
        "objective.segments",
        "objective.corruption",
        "objective.losses.1",
        "train.steps",
        "train.phases",
        "train.optimizer.eps",
    }
    train = recipe("spanbert_base").train
    assert (train.steps, train.learning_rate, train.warmup, train.clip) == (2_400_000, 1e-4, 10_000, 1.0)
    assert (train.optimizer.decay, train.optimizer.eps) == (0.01, 1e-8)  # pyright: ignore[reportAttributeAccessIssue]


def test_counts_to_the_unit():
    """The published encoders, and the head: W1, W2, two norms, places and a bias, the table being that of the input."""
    for name, width, encoder in (("spanbert_base", 768, 108_310_272), ("spanbert_large", 1024, 333_579_264)):
        assert cw.count_parameters(name, heads=False) == encoder
        r = recipe(name)
        whole = cw.count_parameters(r)
        r.objective.losses = r.objective.losses[:1]
        head = (2 * width + 200 + 1) * width + (width + 1) * width + 4 * width + 15 * 200 + 28996
        assert whole - cw.count_parameters(r) == head


def test_the_head_is_counted_in_what_a_step_costs():
    r = recipe("spanbert_mini")
    r.encoder.vocab = 1000
    cost = measure_cost(r)
    parameters, flops = cost.of("heads.span_boundary")
    hidden, tokens = round(HIDDEN * 4096), 4096
    assert parameters == (712 + 1) * 256 + 257 * 256 + 4 * 256 + 15 * 200 + 1000
    assert flops == pytest.approx(2 * hidden * (712 * 256 + 256 * 256 + 256 * 1000) / tokens)
    r.objective.losses = r.objective.losses[:1]
    assert measure_cost(r).passes < cost.passes


@pytest.mark.parametrize("value", ROWS)
def test_each_mask_of_the_comparison_is_one_option(value):
    assert f"corruption={value}" in (spanbert.__doc__ or "")
    assert named.recipe("bert_base", [f"objective.corruption={value}"]).objective.corruption == ROWS[value]


def test_both_losses_fall(tmp_path):
    prepare(documents(150, 1), tmp_path / "data", vocab=400, heldout=0.1)
    r = recipe("spanbert_mini")
    r.encoder.stack.depth, r.objective.segments.length = 2, 48
    r.train.steps, r.train.batch_tokens, r.train.micro_tokens, r.train.precision = 24, 480, 240, "fp32"
    r.train.log_every = r.train.evaluate_every = 8
    pretrain(r, [(tmp_path / "data", 1.0)], tmp_path / "run", progress=False)
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    training = [row for row in rows if "split" not in row]
    for name in ("masked_lm", "span_boundary"):
        assert training[-1][name] < training[0][name] - 0.3
    assert {"masked_accuracy", "boundary_accuracy"} <= training[0].keys()
    assert {"span_boundary", "boundary_accuracy"} <= next(row for row in rows if "split" in row).keys()
    encoder = cw.load(tmp_path / "run")
    assert isinstance(encoder.recipe.objective.losses[1], SpanBoundary)
    assert encoder.fill_mask("the [MASK] fox runs")
