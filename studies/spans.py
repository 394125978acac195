"""Spans that are learned, at several prices, beside a fixed one: `python -m studies.spans`.

Most heads of a model of characters need to look no farther back than some fifty of them (Sukhbaatar et al. 2019): where
every head learns its own span and pays for it, the average is far below the limit, the model is as good, and what a
step costs follows the longest spans. Here a small model learns characters with a fixed span and with learned ones, at
no price and at two; all see the same text in the same order.
"""

import json
import math
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clozeworks.nn.bias.adaptive_span import AdaptiveSpan, AdaptiveSpanLayer
from clozeworks.nn.bias.distance_table import DistanceTable
from clozeworks.objectives.losses.next_token import NextToken
from clozeworks.objectives.losses.span_penalty import SpanPenalty
from clozeworks.objectives.segments import Stream
from studies import figures
from studies.study import Study, mean_difference, mean_interval, prepare_characters, pretrain, set_budget, workspace

STEPS, LENGTH, STREAMS = 500, 128, 16
LIMIT, RAMP, INIT = 512, 32, 0.5  # spans begin in the middle: from 0 none would grow in so few steps, at any price
DEPTH, WIDTH, HEADS = 3, 64, 4
PRICES: dict[str, float | None] = {"fixed": None, "0": 0.0, "2e-5": 2e-5, "2e-4": 2e-4}  # a token and layer
EXAMPLE = "python -m studies.spans --text book.txt --seeds 0,1,2 --plot spans.svg"


def run(seeds: Sequence[int] = (0, 1, 2), steps: int = STEPS, text: str | None = None) -> dict[str, Any]:
    """Of each price, one value a seed: bits a character of held-out text, average span, CPU seconds a step."""
    metrics: dict[str, dict[str, list[float]]] = {}
    heads: dict[str, list[list[float]]] = {}
    with workspace("spans") as folder:
        data = folder / "data"
        prepare_characters(text, data)
        for price in PRICES:
            every = [train(price, data, folder / f"{price}-{seed}", seed, steps) for seed in seeds]
            metrics[price] = {key: [round(each[key], 4) for each in every] for key in ("bits", "span", "seconds")}
            heads[price] = every[0]["heads"]
    more = {
        price: mean_difference(each["bits"], metrics["fixed"]["bits"])
        for price, each in metrics.items()
        if price != "fixed"
    }
    return {
        "steps": steps,
        "tokens_a_step": LENGTH * STREAMS,
        "seeds": list(seeds),
        "limit": LIMIT,
        "ramp": RAMP,
        "metrics": metrics,
        "mean": {
            price: {key: mean_interval(values) for key, values in each.items()} for price, each in metrics.items()
        },
        "bits_more_than_fixed": more,
        "spans_of_the_first_seed": heads,
    }


def train(price: str, data: Path, out: Path, seed: int, steps: int) -> dict[str, Any]:
    """Train one model: what it cost in the second half of its steps, when spans have their length, and what it is."""
    encoder = pretrain(recipe_for(price, seed, steps), data, out)
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text("utf-8").splitlines()]
    measured = [record for record in records if record.get("split") == "heldout"]
    rates = [each["tokens_per_cpu_second"] for each in records if "split" not in each and each["step"] > steps // 2]
    layers = [part for part in encoder.model.encoder.modules() if isinstance(part, AdaptiveSpanLayer)]
    return {
        "bits": measured[-1]["next_token"] / math.log(2),
        "span": statistics.mean(float(part.penalty()["average_span"]) for part in layers) if layers else float(LIMIT),
        "seconds": LENGTH * STREAMS / statistics.median(rates),
        "heads": [[round(z, 1) for z in part.spans().tolist()] for part in layers],
    }


def recipe_for(price: str, seed: int, steps: int) -> Any:
    """Three layers of width 64 over characters, with a fixed span or with one that is learned at a price."""
    import clozeworks

    r = clozeworks.recipe("adaptive_span_mini")
    r.name = f"spans_{price}"
    block, weight = r.encoder.stack.block_at(0), PRICES[price]
    assert block.ffn is not None
    r.encoder.width, r.encoder.stack.depth, r.encoder.stack.memory, block.ffn.inner = WIDTH, DEPTH, LIMIT, 4 * WIDTH
    table = DistanceTable(LIMIT)
    block.mixer.heads, block.mixer.bias = HEADS, table if weight is None else AdaptiveSpan(LIMIT, table, RAMP, INIT)
    words = NextToken(bias=True, tied=False)
    r.objective.losses = (words,) if weight is None else (words, SpanPenalty(weight))
    r.objective.segments = Stream(length=LENGTH, streams=STREAMS)
    r.encoder.init = 0.06  # 0.02 suits a width of 768
    set_budget(r, seed=seed, steps=steps, batch_tokens=LENGTH * STREAMS, learning_rate=3e-3)
    r.train.log_every = 10
    return r


def draw(results: dict[str, Any], path: str) -> None:
    """Average span, bits and seconds by price, a panel each."""
    names = {"fixed": "fixed span", **{price: f"penalty {price}" for price in PRICES if price != "fixed"}}
    metrics = results["metrics"]
    panels = {"average span, tokens": "span", "bits a character": "bits", "CPU seconds a step": "seconds"}
    groups = {panel: {names[price]: each[key] for price, each in metrics.items()} for panel, key in panels.items()}
    figures.bar_panels(groups, path, f"Spans of at most {results['limit']} characters, learned at a price")


STUDY = Study(
    name="spans",
    about="Spans that are learned at several prices, beside a fixed one.",
    example=EXAMPLE,
    run=run,
    draw=draw,
    steps=STEPS,
    text=True,
)
main = STUDY.main


if __name__ == "__main__":
    sys.exit(main())
