"""Two branches against attention alone, for as many multiply-adds: `python -m studies.branches`.

A layer whose channels are split between attention and convolution (Wu et al. 2020) costs less than one that attends
with all of them, and is said to translate better than attention made as cheap. Here three models learn the same pairs
of sentences: with two branches; with attention alone and the usual wide feed-forward part; with attention alone and a
flat one. The latter two are as wide as makes their blocks cost at least as much as those of the first.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clozeworks.core.batch import Batch
from clozeworks.core.context import AttentionCapture
from clozeworks.core.spec import walk
from clozeworks.core.token_info import PADDING, visible
from clozeworks.data.shards.corpus import Corpus
from clozeworks.evaluate.heldout import batches, evaluate
from clozeworks.model import Model
from studies import figures
from studies.study import (
    Study,
    mean_difference,
    mean_interval,
    pretrain,
    read_fields,
    read_pairs,
    search_rate,
    set_budget,
    workspace,
)

STEPS, BATCH_TOKENS, VOCAB = 1500, 2048, 4000
LENGTH = 20  # tokens of a sentence, at which multiply-adds are counted
WIDTHS = {"branches": 128, "attention": 84, "flat": 112}  # the least multiples of 4 that cost as much as the first
RATES = (1e-3, 2e-3)
BASES = {"branches": "lite_transformer_mini", "attention": "transformer_mini", "flat": "transformer_mini"}
WIDER = {"branches": 1, "attention": 4, "flat": 1}  # the inner units of the feed-forward part by the width
EXAMPLE = "python -m studies.branches --train train.jsonl --test val.jsonl --seeds 0,1,2"


def run(
    seeds: Sequence[int] = (0, 1, 2),
    steps: int = STEPS,
    train: str = "",
    test: str = "",
    pairs: str = "en,de",
    rates: Sequence[float] = RATES,
) -> dict[str, Any]:
    """Held-out loss in nats a token, BLEU, and how much of attention stays near, one a seed for each model.

    Each model learns at the rate that gave it the lower held-out loss with the first seed.
    """
    import clozeworks  # what a user calls, and nothing behind it

    names = ("loss", "bleu", "near")
    metrics: dict[str, dict[str, list[float]]] = {name: {} for name in names}
    tried: dict[str, dict[str, float]] = {}
    sides = read_pairs(test, read_fields(pairs))
    with workspace("branches") as folder:
        data, heldout = texts(folder, train, test, read_fields(pairs))
        for kind in BASES:

            def train_one(seed: int, rate: float, kind: str = kind) -> dict[str, float]:
                return train_kind(kind, data, heldout, sides, out=folder / kind, seed=seed, steps=steps, rate=rate)

            every, tried[kind] = search_rate(train_one, lambda each: each["loss"], seeds, rates)
            for name in names:
                metrics[name][kind] = [round(each[name], 4) for each in every]
    recipes = {kind: recipe_for(kind, 0, steps, RATES[0]) for kind in BASES}
    loss = metrics["loss"]
    gaps = {kind: mean_difference(loss[kind], loss["branches"]) for kind in ("attention", "flat")}
    return {
        "steps": steps,
        "tokens_a_step": BATCH_TOKENS,
        "seeds": list(seeds),
        "width": {kind: r.encoder.width for kind, r in recipes.items()},
        "multiply_adds": {kind: clozeworks.multiply_adds(r, LENGTH) for kind, r in recipes.items()},
        "parameters": {kind: clozeworks.count_parameters(r) for kind, r in recipes.items()},
        "heldout_loss_by_rate": tried,
        **metrics,
        "mean": {
            name: {kind: mean_interval(values) for kind, values in each.items()} for name, each in metrics.items()
        },
        "mean_loss_less_that_of_branches": gaps,
    }


def texts(folder: Path, train: str, test: str, names: tuple[str, str]) -> tuple[Path, Path]:
    """The pairs to learn from and others, prepared with the tokenizer of the first."""
    import clozeworks

    data, heldout = folder / "train", folder / "heldout"
    clozeworks.prepare(train, data, vocab=VOCAB, pairs=names, heldout=0)
    clozeworks.prepare(test, heldout, tokenizer=data, pairs=names, heldout=0)
    return data, heldout


def train_kind(
    kind: str,
    data: Path,
    heldout: Path,
    sides: tuple[list[str], list[str]],
    *,
    out: Path,
    seed: int,
    steps: int,
    rate: float,
) -> dict[str, float]:
    """Train a model; its loss on held-out pairs, the BLEU of its translations, and how near its attention stays."""
    from clozeworks.metrics.bleu import bleu

    r = recipe_for(kind, seed, steps, rate)
    encoder, text = pretrain(r, data, out / f"{seed}-{rate}"), Corpus.open(heldout)
    vocabulary = encoder.vocabulary()
    score = bleu(encoder.translate(sides[0]), sides[1], lowercase=True)["bleu"]
    return {
        "loss": evaluate(encoder.model, text, r.objective, vocabulary)["loss"],
        "bleu": score,
        "near": near(encoder.model, [batch.source for batch in batches(text, r.objective, vocabulary) if batch.source]),
    }


@torch.no_grad()
def near(model: Model, sources: Sequence[Batch]) -> float:
    """The share of a token's attention that falls on itself and its two neighbours, in the encoder, the mean over all
    tokens, heads and layers."""
    total, count = 0.0, 0
    for batch in sources:
        capture = AttentionCapture()
        model.encoder(batch.tokens, batch.token_info, batch.context(capture=capture))
        for weights in capture.captured.values():
            total += float(beside(weights, batch).sum())
            count += batch.real * weights.shape[1]
    return total / count


def beside(weights: Tensor, batch: Batch) -> Tensor:
    """[B, H, L, L] -> [B, H, L]: what falls on a token and its neighbours; nothing for padding."""
    side = batch.token_info
    distance = (side.position[:, :, None] - side.position[:, None, :]).abs()
    counted = visible(side, side) & (distance <= 1) & (side.document != PADDING)[:, :, None]
    return (weights * counted[:, None]).sum(-1)


def recipe_for(kind: str, seed: int, steps: int, rate: float) -> Any:
    """Three layers on each side, as wide as makes the blocks cost what those of the model with two branches cost."""
    r = shaped(kind, WIDTHS[kind])
    set_budget(r, seed=seed, steps=steps, batch_tokens=BATCH_TOKENS, learning_rate=rate)
    r.train.warmup = max(1, steps // 5)
    return r


def shaped(kind: str, width: int) -> Any:
    """The recipe of a kind, so wide."""
    import clozeworks

    r = clozeworks.recipe(BASES[kind])
    r.name = f"branches_{kind}"
    r.encoder.width, r.encoder.vocab, r.encoder.init = width, VOCAB, width**-0.5
    for _, part in walk(r):
        if hasattr(part, "inner"):
            setattr(part, "inner", WIDER[kind] * width)  # noqa: B010
    return r


def draw(results: dict[str, Any], path: str) -> None:
    """The held-out losses beside each other, a bar the mean over the seeds and a dot each of them."""
    words = {"branches": "two branches", "attention": "attention", "flat": "attention, flat feed-forward part"}
    bars = {words[kind]: values for kind, values in results["loss"].items()}
    title = "Translation for as many multiply-adds"
    figures.grouped_bars({"held-out pairs": bars}, path, title, "nats a token, fewer are better")


STUDY = Study(
    name="branches",
    about="Two branches against attention alone, on pairs of sentences, for as many multiply-adds.",
    example=EXAMPLE,
    run=run,
    draw=draw,
    steps=STEPS,
    options={
        "--train": {"required": True, "metavar": "FILE", "help": "pairs to learn from, JSON lines"},
        "--test": {"required": True, "metavar": "FILE", "help": "pairs to measure on"},
        "--pairs": {"default": "en,de", "help": "their fields, source and target (en,de)"},
    },
)
main = STUDY.main


if __name__ == "__main__":
    sys.exit(main())
