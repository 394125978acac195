"""What a pretrained start is worth to a model that writes: `python -m studies.starts`.

Four models learn from a few pairs of texts: an encoder with a decoder, and one stack that writes behind its source,
each started from a pretrained encoder or from fresh weights (Rothe et al. 2020; Dong et al. 2019). Reported are the
steps until each reaches the same loss on other pairs, and the loss and BLEU of each in the end.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clozeworks.core.errors import InputError
from studies import figures
from studies.study import Study, finetune, mean_interval, read_fields, read_pairs, search_rate, workspace

STEPS, BATCH, EVERY = 150, 16, 15
PAIRS, MEASURED = 2000, 200  # to learn from; to measure on
RATES = "5e-4,1e-3,2e-3"
FORMS, STARTS = ("decoder", "prefix"), ("pretrained", "fresh")
EXAMPLE = "python -m studies.starts --model run --train train.jsonl --test val.jsonl --seeds 0,1,2"


def run(
    seeds: Sequence[int] = (0, 1, 2),
    steps: int = STEPS,
    model: str = "",
    train: str = "",
    test: str = "",
    pairs: str = "en,de",
    rates: str = RATES,
) -> dict[str, Any]:
    """Of each model the held-out loss by step, in nats a token, a list a seed; each learns at the rate that gave it the
    lowest one in the end with the first seed."""
    import clozeworks  # what a user calls, and nothing behind it

    encoder = clozeworks.load(model)
    texts = (zip(*read_pairs(file, read_fields(pairs)), strict=True) for file in (train, test))
    examples, dev = (
        [{"source": a, "target": b} for a, b in part][:most]
        for part, most in zip(texts, (PAIRS, MEASURED), strict=True)
    )
    curves: dict[str, list[dict[int, float]]] = {}
    bleu: dict[str, list[float]] = {}
    tried: dict[str, dict[str, float]] = {}
    with workspace("starts") as folder:
        for arm in (f"{form}, {start}" for form in FORMS for start in STARTS):

            def train_one(seed: int, rate: float, arm: str = arm) -> tuple[dict[int, float], float]:
                return train_arm(encoder, examples, dev, arm, out=folder / arm, seed=seed, steps=steps, rate=rate)

            every, tried[arm] = search_rate(train_one, lambda each: each[0][steps], seeds, read_rates(rates))
            curves[arm] = [curve for curve, _ in every]
            bleu[arm] = [score for _, score in every]
    losses = {arm: [round(each[steps], 4) for each in some] for arm, some in curves.items()}
    target = max(mean_interval(losses[arm])[0] for arm in losses if arm.endswith("fresh"))
    return {
        "steps": steps,
        "rows_a_step": BATCH,
        "pairs": len(examples),
        "measured": len(dev),
        "seeds": list(seeds),
        "loss_by_rate": tried,
        "loss": losses,
        "mean_loss": {arm: mean_interval(some) for arm, some in losses.items()},
        "bleu": {arm: [round(score, 2) for score in some] for arm, some in bleu.items()},
        "target": round(target, 4),
        "steps_to_target": {arm: [reached(each, target) for each in some] for arm, some in curves.items()},
        "curves": {arm: [{str(step): round(x, 4) for step, x in each.items()} for each in some]
                   for arm, some in curves.items()},
    }  # fmt: skip


def read_rates(rates: str) -> list[float]:
    try:
        return [float(word) for word in rates.split(",")]
    except ValueError:
        raise InputError("--rates", rates, "numbers with commas are needed", f"such as {RATES}") from None


def reached(curve: dict[int, float], target: float) -> int | None:
    """The first measured step whose loss is as low as that; None: none is."""
    return next((step for step, loss in sorted(curve.items()) if loss <= target), None)


def train_arm(
    encoder: Any,
    examples: list[dict[str, str]],
    dev: list[dict[str, str]],
    arm: str,
    *,
    out: Path,
    seed: int,
    steps: int,
    rate: float,
) -> tuple[dict[int, float], float]:
    """The held-out loss by step, and the BLEU of the best model, greedily written."""
    form, start = arm.split(", ")
    changes = {
        "train.steps": steps,
        "train.evaluate_every": EVERY,
        "train.save_every": EVERY,
        "train.learning_rate": rate,
        "train.seed": seed,
        "train.precision": "fp32",
        "task.search.beams": 1,
        "task.target_length": 64,
    }
    done = finetune(
        "seq2seq", encoder, examples, dev, out=out / f"{seed}-{rate}", architecture=form, from_scratch=start == "fresh",
        batch_size=BATCH, max_length=128, changes={name: str(value) for name, value in changes.items()},
    )  # fmt: skip
    lines = (out / f"{seed}-{rate}" / "metrics.jsonl").read_text().splitlines()
    measured = [record for record in map(json.loads, lines) if record.get("split") == "heldout"]
    return {record["step"]: record["loss"] for record in measured}, done.metrics["bleu"]


def draw(results: dict[str, Any], path: str) -> None:
    """The held-out losses beside each other, a bar the mean over the seeds and a dot each of them."""
    groups = {form: {start: results["loss"][f"{form}, {start}"] for start in STARTS} for form in FORMS}
    title = f"Held-out loss after {results['steps']} steps on {PAIRS:,} pairs"
    figures.grouped_bars(groups, path, title, "nats a token, fewer are better")


STUDY = Study(
    name="starts",
    about="A pretrained start against fresh weights, for a decoder and for one stack, on a few pairs of texts.",
    example=EXAMPLE,
    run=run,
    draw=draw,
    steps=STEPS,
    options={
        "--model": {"required": True, "metavar": "M", "help": "the pretrained encoder: a run or a directory"},
        "--train": {
            "required": True,
            "metavar": "FILE",
            "help": f"pairs to learn from, JSON lines ({PAIRS:,} of them)",
        },
        "--test": {"required": True, "metavar": "FILE", "help": f"pairs to measure on ({MEASURED} of them)"},
        "--pairs": {"default": "en,de", "help": "their fields, source and target (en,de)"},
        "--rates": {"default": RATES, "help": f"learning rates to try with the first seed ({RATES})"},
    },
)
main = STUDY.main


if __name__ == "__main__":
    sys.exit(main())
