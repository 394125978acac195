"""Faster must not mean worse: our held-out loss and that of `transformers`' Trainer after the same real tokens."""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.child import environment
from benchmarks.figures import footer, setting_of
from benchmarks.workload import SETTING
from clozeworks.machine import doctor

if TYPE_CHECKING:
    from rich.console import RenderableType

SIDES = ("ours", "theirs")
PACKAGES = ("torch", "transformers", "accelerate", "tokenizers", "numpy")


@dataclass(frozen=True, slots=True)
class Setting:
    recipe: str = "bert_mini"
    data: str | None = None  # text or a prepared directory; None: the embedded corpus
    vocab: int = 8192
    repetitions: int = 5  # seeds: of the weights, the order, the masks and the dropout
    steps: int = 400  # of the peer; ours are as many as have the same real tokens
    batch_tokens: int = 4096
    learning_rate: float = 1e-3
    warmup: float = 0.1
    threads: int | None = None  # None: every core this process may use

    @staticmethod
    def quick() -> "Setting":
        return Setting(repetitions=3, steps=100, batch_tokens=1024)


def run(setting: Setting) -> dict[str, Any]:
    """Train both for every seed, in turns; the figures as one object that JSON can hold."""
    from benchmarks import peer

    peer.library()
    threads, begin = setting.threads or doctor.cores(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="clozeworks-bench-") as name:
        folder = Path(name)
        (folder / SETTING).write_text(json.dumps(asdict(setting)))
        work = ask(folder, threads, "make")
        rows: dict[str, list[Any]] = {side: [] for side in SIDES}
        for seed in range(setting.repetitions):
            rows["theirs"].append(ask(folder, threads, "theirs", seed))
            rows["ours"].append(ask(folder, threads, "ours", seed, rows["theirs"][-1]["tokens"]))
    return {
        "benchmark": "quality",
        "text": setting.data or "embedded, en",
        "workload": work,
        "schedule": {"learning_rate": setting.learning_rate, "warmup": setting.warmup, "shape": "linear"},
        "dtype": "fp32",
        **summary(rows),
        "repetitions": setting.repetitions,
        "seeds": rows,
        **setting_of(threads, PACKAGES, begin),
    }


def ask(folder: Path, threads: int, side: str, *more: int) -> dict[str, Any]:
    """What a child answers."""
    command = [sys.executable, "-m", "benchmarks.learning", side, str(folder), str(threads), *map(str, more)]
    done = subprocess.run(command, env=environment(threads), capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{side} died with {done.returncode}:\n{done.stderr[-4000:]}")
    return json.loads(done.stdout)


def summary(rows: dict[str, list[Any]]) -> dict[str, Any]:
    """Means over the seeds, and whether their difference is within what another seed would change."""
    sides = {}
    for side, found in rows.items():
        losses = [row["loss"] for row in found]
        sides[side] = {
            "loss": round(statistics.mean(losses), 4),
            "lowest": round(min(losses), 4),
            "highest": round(max(losses), 4),
            "accuracy": round(statistics.mean(row["accuracy"] for row in found), 4),
            **{name: round(statistics.mean(row[name] for row in found)) for name in ("steps", "tokens", "predicted")},
            "seconds": round(statistics.mean(row["seconds"] for row in found), 1),
        }
    difference = statistics.mean(row["loss"] for row in rows["ours"]) - statistics.mean(
        row["loss"] for row in rows["theirs"]
    )
    spread = max(side["highest"] - side["lowest"] for side in sides.values())
    verdict = "equal" if abs(difference) <= spread else "better" if difference < 0 else "worse"
    return {"sides": sides, "difference": round(difference, 4), "spread": round(spread, 4), "verdict": verdict}


def render(figures: dict[str, Any]) -> "RenderableType":
    """The figures for a terminal."""
    from rich.console import Group
    from rich.table import Table

    work, machine, sides = figures["workload"], figures["machine"], figures["sides"]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("", "clozeworks", "transformers"):
        table.add_column(name, justify="right" if name else "left")
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
    told = {
        "equal": "no difference that another seed would not make",
        "better": "ours is lower by more than another seed would change",
        "worse": "ours is higher by more than another seed would change",
    }
    return Group(
        f"{work['recipe']}, {work['parameters']:,} parameters, vocabulary {work['vocabulary']:,}; "
        f"text: {figures['text']}; fp32, {machine['threads']} threads; "
        f"{figures['repetitions']} seeds, the same first weights for both",
        "",
        table,
        "",
        f"{figures['verdict']}: {figures['difference']:+.4f} with a spread of {figures['spread']:.4f}; "
        f"{told[figures['verdict']]}",
        footer(figures),
    )
