"""Faster must not mean worse: our held-out loss and that of `transformers`' Trainer after the same real tokens."""

import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from benchmarks import harness
from benchmarks.harness import Segments, ask, benchmark, footer
from benchmarks.side import answer

if TYPE_CHECKING:
    from rich.console import RenderableType

SIDES = ("ours", "theirs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting(harness.Setting):
    """What both train, on which text, for how long."""

    recipe: str = "bert_mini"
    data: str | None = None  # text or a prepared directory; None: the embedded corpus
    vocab: int = 8192
    repetitions: int = 5  # seeds: of the weights, the order, the masks and the dropout
    steps: int = 400  # of the peer; ours are as many as have the same real tokens
    batch_tokens: int = 4096
    learning_rate: float = 1e-3
    warmup: float = 0.1

    @classmethod
    def quick(cls) -> "Setting":
        return cls(repetitions=3, steps=100, batch_tokens=1024)


@benchmark("quality", ("torch", "transformers", "accelerate", "tokenizers", "numpy"))
def run(setting: Setting, folder: Path) -> dict[str, Any]:
    """Train both for every seed, in turns."""
    from benchmarks import peer

    peer.library()
    threads = setting.cores
    work = ask("quality", folder, threads, "make")
    seeds: Segments = {side: [] for side in SIDES}
    for seed in map(str, range(setting.repetitions)):
        seeds["theirs"].append(ask("quality", folder, threads, "theirs", seed))
        seeds["ours"].append(ask("quality", folder, threads, "ours", seed, str(seeds["theirs"][-1]["tokens"])))
    return {
        "text": setting.data or "embedded, en",
        "workload": work,
        "schedule": {"learning_rate": setting.learning_rate, "warmup": setting.warmup, "shape": "linear"},
        "dtype": "fp32",
        **summary(seeds),
        "repetitions": setting.repetitions,
        "seeds": seeds,
    }


def serve(folder: Path, answers: IO[str], act: str, *numbers: str) -> None:
    """What a side does: make the workload, or train with a seed."""
    from benchmarks import quality_sides

    if act == "make":
        answer(answers, quality_sides.make(folder))
    else:
        answer(answers, quality_sides.train(act, folder, *map(int, numbers)))


def summary(seeds: Segments) -> dict[str, Any]:
    """Means over the seeds, and whether their difference is within what another seed would change."""
    sides = {}
    for side, runs in seeds.items():
        losses = [each["loss"] for each in runs]
        sides[side] = {
            "loss": round(statistics.mean(losses), 4),
            "lowest": round(min(losses), 4),
            "highest": round(max(losses), 4),
            "accuracy": round(statistics.mean(each["accuracy"] for each in runs), 4),
            **{name: round(statistics.mean(each[name] for each in runs)) for name in ("steps", "tokens", "predicted")},
            "seconds": round(statistics.mean(each["seconds"] for each in runs), 1),
        }
    ours, theirs = (statistics.mean(each["loss"] for each in seeds[side]) for side in SIDES)
    difference, spread = ours - theirs, max(side["highest"] - side["lowest"] for side in sides.values())
    verdict = "equal" if abs(difference) <= spread else "better" if difference < 0 else "worse"
    return {"sides": sides, "difference": round(difference, 4), "spread": round(spread, 4), "verdict": verdict}


def render(results: dict[str, Any]) -> "RenderableType":
    """The results for a terminal."""
    from rich.console import Group

    work, machine, sides = results["workload"], results["machine"], results["sides"]
    table = harness.make_table("", "clozeworks", "transformers")
    for label, key, form in (
        ("held-out loss", "loss", ".4f"),
        ("  lowest of the seeds", "lowest", ".4f"),
        ("  highest", "highest", ".4f"),
        ("held-out accuracy", "accuracy", ".1%"),
        ("real tokens", "tokens", ",.0f"),
        ("  of them predicted", "predicted", ",.0f"),
        ("updates", "steps", ",.0f"),
        ("seconds of training", "seconds", ",.1f"),
    ):
        table.add_row(label, *(format(sides[side][key], form) for side in SIDES))
    verdicts = {
        "equal": "no difference that another seed would not make",
        "better": "ours is lower by more than another seed would change",
        "worse": "ours is higher by more than another seed would change",
    }
    return Group(
        f"{work['recipe']}, {work['parameters']:,} parameters, vocabulary {work['vocabulary']:,}; "
        f"text: {results['text']}; fp32, {machine['threads']} threads; "
        f"{results['repetitions']} seeds, the same first weights for both",
        "",
        table,
        "",
        f"{results['verdict']}: {results['difference']:+.4f} with a spread of {results['spread']:.4f}; "
        f"{verdicts[results['verdict']]}",
        footer(results),
    )
