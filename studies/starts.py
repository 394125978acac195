"""What a pretrained start is worth to a model that writes: `python -m studies.starts`.

Four models learn from a few pairs of texts: an encoder with a decoder, and one stack that writes behind its source,
each started from a pretrained encoder or from fresh weights (Rothe et al. 2020; Dong et al. 2019). Told are the steps
until each reaches the same loss on other pairs, and the loss and BLEU of each in the end.
"""

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clozeworks.core.errors import InputError
from clozeworks.plots import charts
from studies import script
from studies.branches import fields, read
from studies.independence import mean

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
    texts = (zip(*read(file, fields(pairs)), strict=True) for file in (train, test))
    rows, dev = (
        [{"source": a, "target": b} for a, b in part][:most]
        for part, most in zip(texts, (PAIRS, MEASURED), strict=True)
    )
    curves: dict[str, list[dict[int, float]]] = {}
    bleu: dict[str, list[float]] = {}
    tried: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="clozeworks-starts-") as name:
        for arm in (f"{form}, {start}" for form in FORMS for start in STARTS):
            place = Path(name) / arm
            first = {rate: learnt(encoder, rows, dev, arm, place, seeds[0], steps, rate) for rate in numbers(rates)}
            best = min(first, key=lambda rate: first[rate][0][steps])
            rest = [learnt(encoder, rows, dev, arm, place, seed, steps, best) for seed in seeds[1:]]
            curves[arm] = [curve for curve, _ in (first[best], *rest)]
            bleu[arm] = [score for _, score in (first[best], *rest)]
            tried[arm] = {str(rate): round(found[0][steps], 4) for rate, found in first.items()}
    losses = {arm: [round(each[steps], 4) for each in found] for arm, found in curves.items()}
    target = max(mean(losses[arm])[0] for arm in losses if arm.endswith("fresh"))
    return {
        "steps": steps,
        "rows_a_step": BATCH,
        "pairs": len(rows),
        "measured": len(dev),
        "seeds": list(seeds),
        "loss_by_rate": tried,
        "loss": losses,
        "mean_loss": {arm: mean(found) for arm, found in losses.items()},
        "bleu": {arm: [round(score, 2) for score in found] for arm, found in bleu.items()},
        "target": round(target, 4),
        "steps_to_target": {arm: [reached(each, target) for each in found] for arm, found in curves.items()},
        "curves": {arm: [{str(step): round(x, 4) for step, x in each.items()} for each in found]
                   for arm, found in curves.items()},
    }  # fmt: skip


def numbers(rates: str) -> list[float]:
    try:
        return [float(word) for word in rates.split(",")]
    except ValueError:
        raise InputError("--rates", rates, "numbers with commas are needed", f"such as {RATES}") from None


def reached(curve: dict[int, float], target: float) -> int | None:
    """The first measured step whose loss is as low as that; None: none is."""
    return next((step for step, loss in sorted(curve.items()) if loss <= target), None)


def learnt(
    encoder: Any,
    rows: list[dict[str, str]],
    dev: list[dict[str, str]],
    arm: str,
    out: Path,
    seed: int,
    steps: int,
    rate: float,
) -> tuple[dict[int, float], float]:
    """The held-out loss by step, and the BLEU of the best model, greedily written."""
    import clozeworks

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
    done = clozeworks.finetune(
        "write", encoder, rows, dev, out=out / f"{seed}-{rate}", form=form, from_scratch=start == "fresh", batch=BATCH,
        length=128, progress=False, changes={name: str(value) for name, value in changes.items()},
    )  # fmt: skip
    if not done.finished:
        raise SystemExit(128 + done.signal)
    lines = (out / f"{seed}-{rate}" / "metrics.jsonl").read_text().splitlines()
    measured = [row for row in map(json.loads, lines) if row.get("split") == "heldout"]
    return {row["step"]: row["loss"] for row in measured}, done.metrics["bleu"]


def draw(figures: dict[str, Any], path: str) -> None:
    """The held-out losses beside each other, a bar the mean over the seeds and a dot each of them."""
    groups = {form: {start: figures["loss"][f"{form}, {start}"] for start in STARTS} for form in FORMS}
    title = f"Held-out loss after {figures['steps']} steps on {PAIRS:,} pairs"
    charts.grouped_bars(groups, path, title, "nats a token, fewer are better")


def main(words: Sequence[str] | None = None) -> int:
    """0 done, 2 bad input, told in one sentence."""
    about = "A pretrained start against fresh weights, for a decoder and for one stack, on a few pairs of texts."
    parser = script.Arguments("starts", about, EXAMPLE, STEPS)
    parser.add_argument("--model", required=True, metavar="M", help="the pretrained encoder: a run or a directory")
    parser.add_argument(
        "--train", required=True, metavar="FILE", help=f"pairs to learn from, JSON lines ({PAIRS:,} of them)"
    )
    parser.add_argument("--test", required=True, metavar="FILE", help=f"pairs to measure on ({MEASURED} of them)")
    parser.add_argument("--pairs", default="en,de", help="their fields, source and target (en,de)")
    parser.add_argument("--rates", default=RATES, help=f"learning rates to try with the first seed ({RATES})")
    return script.answer(parser, words, run, draw)


if __name__ == "__main__":
    sys.exit(main())
