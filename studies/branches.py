"""Two branches against attention alone, for as many multiply-adds: `python -m studies.branches`.

A layer whose channels are split between attention and convolution (Wu et al. 2020) costs less than one that attends
with all of them, and is said to translate better than attention made as cheap. Here three models learn the same pairs
of sentences: with two branches; with attention alone and the usual wide feed-forward part; with attention alone and a
flat one. The latter two are as wide as makes their blocks cost at least as much as those of the first.
"""

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clozeworks.core.batch import Batch
from clozeworks.core.context import AttentionCapture
from clozeworks.core.errors import InputError
from clozeworks.core.spec import walk
from clozeworks.core.token_info import PADDING, visible
from clozeworks.data.shards.corpus import Corpus
from clozeworks.evaluate.heldout import batches, evaluate
from clozeworks.model import Model
from clozeworks.plots import charts
from studies import script
from studies.independence import mean

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
    found: dict[str, dict[str, list[float]]] = {name: {} for name in names}
    tried: dict[str, dict[str, float]] = {}
    sides = read(test, fields(pairs))
    with tempfile.TemporaryDirectory(prefix="clozeworks-branches-") as name:
        data, heldout = texts(Path(name), train, test, fields(pairs))
        for kind in BASES:
            out = Path(name) / kind
            first = {rate: learnt(kind, data, heldout, sides, out, seeds[0], steps, rate) for rate in rates}
            best = min(rates, key=lambda rate: first[rate]["loss"])
            rest = [learnt(kind, data, heldout, sides, out, seed, steps, best) for seed in seeds[1:]]
            for measured in names:
                found[measured][kind] = [round(each[measured], 4) for each in (first[best], *rest)]
            tried[kind] = {str(rate): round(each["loss"], 4) for rate, each in first.items()}
    recipes = {kind: recipe_for(kind, 0, steps, RATES[0]) for kind in BASES}
    loss = found["loss"]
    gaps = {
        kind: mean([a - b for a, b in zip(loss[kind], loss["branches"], strict=True)]) for kind in ("attention", "flat")
    }
    return {
        "steps": steps,
        "tokens_a_step": BATCH_TOKENS,
        "seeds": list(seeds),
        "width": {kind: r.encoder.width for kind, r in recipes.items()},
        "multiply_adds": {kind: clozeworks.multiply_adds(r, LENGTH) for kind, r in recipes.items()},
        "parameters": {kind: clozeworks.count_parameters(r) for kind, r in recipes.items()},
        "heldout_loss_by_rate": tried,
        **found,
        "mean": {name: {kind: mean(values) for kind, values in each.items()} for name, each in found.items()},
        "mean_loss_less_that_of_branches": gaps,
    }


def fields(pairs: str) -> tuple[str, str]:
    """The names of source and target."""
    names = [name.strip() for name in pairs.split(",")]
    if len(names) != 2 or not all(names):
        raise InputError("--pairs", pairs, "the names of two fields are needed", "such as en,de")
    return names[0], names[1]


def read(path: str, names: tuple[str, str]) -> tuple[list[str], list[str]]:
    """Sources and targets of a file of JSON lines."""
    if not Path(path).is_file():
        raise InputError("--test", path or "nothing", "a file of JSON lines is needed", f"for example: {EXAMPLE}")
    rows = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines() if line.strip()]
    for number, row in enumerate(rows, 1):
        if not all(isinstance(row.get(name), str) for name in names):
            needed = f"an object with the texts {names[0]} and {names[1]} is needed on each line"
            raise InputError(f"{path}:{number}", str(row)[:60], needed, "name the fields with --pairs")
    return [row[names[0]] for row in rows], [row[names[1]] for row in rows]


def texts(folder: Path, train: str, test: str, names: tuple[str, str]) -> tuple[Path, Path]:
    """The pairs to learn from and others, prepared with the tokenizer of the first."""
    import clozeworks

    data, heldout = folder / "train", folder / "heldout"
    clozeworks.prepare(train, data, vocab=VOCAB, pairs=names, heldout=0)
    clozeworks.prepare(test, heldout, tokenizer=data, pairs=names, heldout=0)
    return data, heldout


def learnt(
    kind: str,
    data: Path,
    heldout: Path,
    sides: tuple[list[str], list[str]],
    out: Path,
    seed: int,
    steps: int,
    rate: float,
) -> dict[str, float]:
    """Train a model; its loss on held-out pairs, the BLEU of its translations, and how near its attention stays."""
    from clozeworks.metrics.bleu import bleu

    r = recipe_for(kind, seed, steps, rate)
    encoder, text = script.trained(r, data, out / f"{seed}-{rate}"), Corpus.open(heldout)
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
        taps = AttentionCapture()
        model.encoder(batch.tokens, batch.token_info, batch.context(capture=taps))
        for weights in taps.captured.values():
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
    r.train.batch_tokens, r.train.steps, r.train.warmup = BATCH_TOKENS, steps, max(1, steps // 5)
    r.train.learning_rate, r.train.seed, r.train.precision = rate, seed, "fp32"
    r.train.save_every = r.train.evaluate_every = steps
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


def draw(figures: dict[str, Any], path: str) -> None:
    """The held-out losses beside each other, a bar the mean over the seeds and a dot each of them."""
    words = {"branches": "two branches", "attention": "attention", "flat": "attention, flat feed-forward part"}
    bars = {words[kind]: values for kind, values in figures["loss"].items()}
    title = "Translation for as many multiply-adds"
    charts.grouped_bars({"held-out pairs": bars}, path, title, "nats a token, fewer are better")


def main(words: Sequence[str] | None = None) -> int:
    """0 done, 2 bad input, told in one sentence."""
    about = "Two branches against attention alone, on pairs of sentences, for as many multiply-adds."
    parser = script.Arguments("branches", about, EXAMPLE, STEPS)
    parser.add_argument("--train", required=True, metavar="FILE", help="pairs to learn from, JSON lines")
    parser.add_argument("--test", required=True, metavar="FILE", help="pairs to measure on")
    parser.add_argument("--pairs", default="en,de", help="their fields, source and target (en,de)")
    return script.answer(parser, words, run, draw)


if __name__ == "__main__":
    sys.exit(main())
