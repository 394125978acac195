"""How `python -m benchmarks long` is told: a plot and a table."""

from typing import TYPE_CHECKING, Any

from benchmarks.figures import footer
from clozeworks.plots import charts

if TYPE_CHECKING:
    from rich.console import RenderableType

RIVALS = {"longformer": "window", "reformer": "lsh"}  # and which of ours each is held against
LINES = {
    "window": "window",
    "longformer": "transformers, Longformer",
    "lsh": "hashing, reversible",
    "reformer": "transformers, Reformer",
    "full": "full",
}


def draw(rows: dict[str, Any], path: str) -> None:
    """Time and memory of forward and backward by length."""
    took: dict[str, list[tuple[float, float, float, float]]] = {}
    held: dict[str, list[tuple[float, float, float, float]]] = {}
    for length, row in rows.items():
        both, at = row["both"], float(length)
        for side, name in LINES.items():
            if side in both["seconds"]:
                seconds = both["seconds"][side]
                took.setdefault(name, []).append((at, *(1000 * seconds[k] for k in ("median", "lowest", "highest"))))
            if side in both["mb"]:
                megabytes = max(both["mb"][side], 1.0)
                held.setdefault(name, []).append((at, megabytes, megabytes, megabytes))
    panels = {"milliseconds": took} | ({"megabytes above the idle process": held} if held else {})
    charts.growths(panels, path, "Forward and backward over one row", "tokens")


def render(figures: dict[str, Any]) -> "RenderableType":
    """The figures for a terminal."""
    from rich.console import Group
    from rich.table import Table

    shape = figures["shape"]
    head = (
        f"{shape['depth']} layers of width {shape['width']}, {shape['heads']} heads, window {shape['window']} to each "
        f"side, chunks of {shape['chunk']}, rounds {shape['rounds']}; one row; fp32, "
        f"{figures['machine']['threads']} threads; {figures['repetitions']} repetitions"
    )
    parts: list[Any] = [head]
    dropped = f"dropout {shape['dropout']}" + (
        " of vectors and of weights, full of vectors" if shape["dropout"] else ""
    )
    for mode, told in (("forward", "Forward alone"), ("both", f"Forward and backward, {dropped}")):
        rows = figures["lengths"]
        names = [side for side in LINES if any(side in row[mode]["seconds"] for row in rows.values())]
        for unit, cell in (("milliseconds", _milliseconds), ("megabytes above the idle process", _megabytes)):
            table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
            for heading in ("tokens", *names, *(f"by {RIVALS[rival]}" for rival in RIVALS if rival in names)):
                table.add_column(heading, justify="right")
            for length, row in rows.items():
                table.add_row(f"{int(length):,}", *cell(row[mode], names))
            parts += ["", f"{told}: {unit}", table]
        slopes = figures["slopes"].get(mode, {})
        told_slopes = ", ".join(f"{side} {slopes[side]:.2f}" for side in names if side in slopes)
        parts += [f"time grows with length to the power of: {told_slopes}"]
        paths = {int(length): row[mode].get("path", {}).get("window") for length, row in rows.items()}
        if any(paths.values()):
            parts += [f"window went by: {', '.join(f'{length:,} {path}' for length, path in paths.items())}"]
    parts.append("")
    for kind, depths in figures["kept_bytes"].items():
        told = ", ".join(f"{bytes_ / 2**20:,.1f} MB at {depth}" for depth, bytes_ in depths.items())
        parts.append(f"kept for the way back, {LINES[kind]}, by layers: {told}")
    return Group(*parts, "", footer(figures))


def _milliseconds(row: dict[str, Any], names: list[str]) -> list[str]:
    seconds = [row["seconds"].get(side) for side in names]
    ratios = [row["ratio"][rival] for rival in RIVALS if rival in row.get("ratio", {})]
    return ["" if each is None else f"{1000 * each['median']:,.1f}" for each in seconds] + [
        f"{ratio['median']:.2f}" for ratio in ratios
    ]


def _megabytes(row: dict[str, Any], names: list[str]) -> list[str]:
    held = [row["mb"].get(side) for side in names]
    ratios = [row["mb_ratio"][rival] for rival in RIVALS if rival in row.get("mb_ratio", {})]
    return ["" if each is None else f"{each:,.0f}" for each in held] + [f"{ratio:.2f}" for ratio in ratios]
