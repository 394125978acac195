"""Our pretraining step against the Trainer of `transformers`: same weights, same sentences, same threads, in turns."""

import json
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clozeworks import doctor
from clozeworks.bench.child import Contestant, ask
from clozeworks.bench.figures import footer, setting_of, spread, told
from clozeworks.bench.workload import SETTING

if TYPE_CHECKING:
    from rich.console import RenderableType

SIDES = ("ours", "trainer")
PACKAGES = ("torch", "transformers", "accelerate", "tokenizers", "numpy")
NEAR = 1e-3  # how far the losses of the two may lie apart on the same weights and examples


@dataclass(frozen=True, slots=True)
class Setting:
    recipe: str = "bert_mini"
    vocab: int = 8192
    documents: int | None = None  # of the embedded corpus; None: all
    repetitions: int = 9
    warmup: int = 5  # steps
    steps: int | None = None  # in a segment; None: one sweep of the peer's sampler
    limit: float | None = None  # seconds after which no further repetition begins
    threads: int | None = None  # None: every core this process may use

    @staticmethod
    def quick() -> "Setting":
        return Setting(repetitions=3, limit=150.0)


def run(setting: Setting) -> dict[str, Any]:
    """Measure; the figures as one object that JSON can hold."""
    from clozeworks.bench import peer

    peer.library()
    threads = setting.threads or doctor.cores()
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="clozeworks-bench-") as name:
        folder = Path(name)
        (folder / SETTING).write_text(json.dumps(asdict(setting)))
        work = ask("make", folder, threads)
        losses = ask("same", folder, threads)
        if abs(losses["ours"] - losses["theirs"]) > NEAR:
            raise RuntimeError(f"the two models are not the same: step 0 gives {losses}")
        sides = {side: Contestant(side, folder, threads) for side in SIDES}
        try:
            segments = measure(setting, sides, setting.steps or work["steps_a_segment"], begin)
        finally:
            for side in sides.values():
                side.close()
        parts = ask("breakdown", folder, threads)
    return {
        "benchmark": "pretrain",
        "workload": work,
        "dtype": "fp32",
        "loss_at_step_0": losses,
        **summary(segments),
        "breakdown_cpu_ms": parts,
        "peer": {"settings": peer.SETTINGS, "collator": "DataCollatorForLanguageModeling(mlm_probability=0.15)"},
        "segments": segments,
        **setting_of(threads, PACKAGES, begin),
    }


def measure(setting: Setting, sides: dict[str, Contestant], steps: int, begin: float) -> dict[str, list[Any]]:
    """Segments in turns, one side resting while the other works; who goes first changes each time."""
    for side in sides.values():
        side.go(setting.warmup)
    segments: dict[str, list[Any]] = {name: [] for name in sides}
    for turn in range(setting.repetitions):
        if turn > 1 and setting.limit is not None and time.monotonic() - begin > setting.limit * turn / (turn + 1):
            break
        for name in (SIDES, SIDES[::-1])[turn % 2]:
            segments[name].append(sides[name].go(steps))
    return segments


def summary(segments: dict[str, list[Any]]) -> dict[str, Any]:
    """Medians of each side, and the ratio of each repetition's pair with its spread."""
    sides = {}
    for name, rows in segments.items():
        tokens, steps = sum(row["tokens"] for row in rows), sum(row["steps"] for row in rows)
        sides[name] = {
            "tokens_per_second": round(statistics.median(row["tokens"] / row["seconds"] for row in rows), 1),
            "tokens_per_cpu_second": round(statistics.median(row["tokens"] / row["cpu_seconds"] for row in rows), 1),
            "real_tokens_a_step": round(tokens / steps, 1),
            "share_of_padding": round(1 - tokens / sum(row["computed"] for row in rows), 4),
            "peak_mb": rows[-1]["peak_mb"],
            "before_training_mb": rows[-1]["base_mb"],
        }
    ours, theirs = sides["ours"]["peak_mb"], sides["trainer"]["peak_mb"]
    pairs = list(zip(segments["ours"], segments["trainer"], strict=True))
    return {
        "sides": sides,
        "repetitions": len(pairs),
        "ratio": {
            clock: spread([a["tokens"] / a[clock] / (b["tokens"] / b[clock]) for a, b in pairs])
            for clock in ("seconds", "cpu_seconds")
        },
        "peak_memory_ratio": round(ours / theirs, 3) if ours and theirs else None,
    }


def render(figures: dict[str, Any]) -> "RenderableType":
    """The figures for a terminal."""
    from rich.console import Group
    from rich.table import Table

    work, machine, sides = figures["workload"], figures["machine"], figures["sides"]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("")
    for name in ("clozeworks", "transformers", "ratio"):
        table.add_column(name, justify="right")
    for label, key, clock in (
        ("real tokens a second", "tokens_per_second", "seconds"),
        ("real tokens a processor second", "tokens_per_cpu_second", "cpu_seconds"),
    ):
        table.add_row(label, *(f"{sides[side][key]:,.0f}" for side in SIDES), told(figures["ratio"][clock]))
    table.add_row("real tokens a step", *(f"{sides[side]['real_tokens_a_step']:,.0f}" for side in SIDES), "")
    table.add_row("share of padding", *(f"{sides[side]['share_of_padding']:.1%}" for side in SIDES), "")
    for label, key in (("peak memory, MB", "peak_mb"), ("  of it before training", "before_training_mb")):
        values = [sides[side][key] for side in SIDES]
        ratio = f"{values[0] / values[1]:.2f}" if all(values) else ""
        table.add_row(label, *("?" if value is None else f"{value:,.0f}" for value in values), ratio)
    whole = sum(figures["breakdown_cpu_ms"].values())
    parts = ", ".join(f"{name} {value / whole:.0%}" for name, value in figures["breakdown_cpu_ms"].items())
    losses, steps = figures["loss_at_step_0"], figures["segments"]["ours"][0]["steps"]
    return Group(
        f"{work['recipe']}, {work['parameters']:,} parameters, vocabulary {work['vocabulary']:,}; "
        f"{work['examples']:,} sentences of {work['tokens_an_example']['50%']} tokens in the middle; fp32, "
        f"{machine['threads']} threads; {figures['repetitions']} x {steps} steps in turns",
        f"loss at step 0 on the same examples: {losses['ours']:.4f} and {losses['theirs']:.4f}",
        "",
        table,
        "",
        f"our step ({whole:,.0f} ms of processor time): {parts}",
        footer(figures),
    )
