"""What `bench pretrain` tells: medians of both sides, ratios of pairs, and how near a step comes to its products."""

import statistics
from typing import TYPE_CHECKING, Any

from benchmarks.figures import footer, spread, told

if TYPE_CHECKING:
    from rich.console import RenderableType

SIDES = ("ours", "trainer")


def summary(segments: dict[str, list[Any]], rates: list[dict[str, float]], work: dict[str, Any]) -> dict[str, Any]:
    """Medians of each side, and the ratio of each repetition's pair with its spread."""
    linear = statistics.median(rate["flops_per_second"] for rate in rates)
    sides = {}
    for name, rows in segments.items():
        tokens, steps = sum(row["tokens"] for row in rows), sum(row["steps"] for row in rows)
        speed = statistics.median(row["tokens"] / row["seconds"] for row in rows)
        sides[name] = {
            "tokens_per_second": round(speed, 1),
            "tokens_per_cpu_second": round(statistics.median(row["tokens"] / row["cpu_seconds"] for row in rows), 1),
            "real_tokens_a_step": round(tokens / steps, 1),
            "share_of_padding": round(1 - tokens / sum(row["computed"] for row in rows), 4),
            "useful_share_of_linear": round(speed * work["flops_a_token"]["useful"] / linear, 3),
            "peak_mb": rows[-1]["peak_mb"],
            "before_training_mb": rows[-1]["base_mb"],
        }
    speed = sides["ours"]["tokens_per_second"]
    sides["ours"]["computed_share_of_linear"] = round(speed * work["flops_a_token"]["computed"] / linear, 3)
    ours, theirs = sides["ours"]["peak_mb"], sides["trainer"]["peak_mb"]
    pairs = list(zip(segments["ours"], segments["trainer"], strict=True))
    return {
        "sides": sides,
        "repetitions": len(pairs),
        "linear_gflops_per_second": round(linear / 1e9, 1),
        "ratio": {
            clock: spread([a["tokens"] / a[clock] / (b["tokens"] / b[clock]) for a, b in pairs])
            for clock in ("seconds", "cpu_seconds")
        },
        "peak_memory_ratio": round(ours / theirs, 3) if ours and theirs else None,
    }


def render(figures: dict[str, Any]) -> "RenderableType":
    """The figures for a terminal."""
    from rich.console import Group

    profiled = any("profile" in cell for cell in figures["cells"].values())
    table = parts(figures["cells"]) if profiled else comparison(figures["cells"])
    lines = [about(name, cell) for name, cell in figures["cells"].items()]
    threads = figures["machine"]["threads"]
    return Group(*lines, "", table, "", f"fp32, {threads} threads; {footer(figures)}; {figures['seconds']:,.0f} s")


def about(name: str, cell: dict[str, Any]) -> str:
    work = cell["workload"]
    length = work["tokens_an_example"]
    text = f"rows of {length['50%']}" if length["5%"] == length["95%"] else f"sentences of {length['50%']} tokens"
    told = f"{name}: {work['parameters']:,} parameters, vocabulary {work['vocabulary']:,}; {text}"
    if "segments" in cell:
        told += f"; {cell['repetitions']} x {cell['segments']['ours'][0]['steps']} steps of {work['tokens_a_step']:,}"
        told += f" tokens; loss at step 0 {cell['loss_at_step_0']['ours']:.4f}, {cell['loss_at_step_0']['theirs']:.4f}"
    return told


def comparison(cells: dict[str, Any]) -> "RenderableType":
    table = _table("", "tokens/s", "Trainer's", "ratio", "ratio, processor time", "memory", "of linear", "Trainer's")
    for name, cell in cells.items():
        ours, theirs = (cell["sides"][side] for side in SIDES)
        memory = cell["peak_memory_ratio"]
        table.add_row(
            name,
            *(f"{side['tokens_per_second']:,.0f}" for side in (ours, theirs)),
            *(told(cell["ratio"][clock]) for clock in ("seconds", "cpu_seconds")),
            "?" if memory is None else f"{memory:.2f}",
            *(f"{side['useful_share_of_linear']:.0%}" for side in (ours, theirs)),
        )
    return table


def parts(cells: dict[str, Any]) -> "RenderableType":
    """Where our time goes, in per cent of a step."""
    table = _table("our step, % of its time", *cells)
    profiles = [cell["profile"] for cell in cells.values()]
    for kind in ("parts", "kinds"):
        for part in profiles[0][kind]:
            shares = (profile[kind][part] / max(sum(profile[kind].values()), 1e-9) for profile in profiles)
            table.add_row(part, *(f"{100 * share:.1f}" for share in shares))
        table.add_section()
    table.add_row("milliseconds", *(f"{sum(profile['parts'].values()):,.0f}" for profile in profiles))
    return table


def _table(first: str, *others: str):
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column(first)
    for name in others:
        table.add_column(name, justify="right")
    return table
