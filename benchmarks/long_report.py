"""The plot and the tables of `python -m benchmarks long`."""

from typing import TYPE_CHECKING, Any

from benchmarks.harness import footer, make_table
from studies import figures

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
    figures.growths(panels, path, "Forward and backward over one row", "tokens")


def render(results: dict[str, Any]) -> "RenderableType":
    """The results for a terminal."""
    from rich.console import Group

    shape = results["shape"]
    head = (
        f"{shape['depth']} layers of width {shape['width']}, {shape['heads']} heads, window {shape['window']} to each "
        f"side, chunks of {shape['chunk']}, rounds {shape['rounds']}; one row; fp32, "
        f"{results['machine']['threads']} threads; {results['repetitions']} repetitions"
    )
    parts: list[Any] = [head]
    dropped = f"dropout {shape['dropout']}" + (
        " of vectors and of weights, full of vectors" if shape["dropout"] else ""
    )
    for mode, title in (("forward", "Forward alone"), ("both", f"Forward and backward, {dropped}")):
        parts += render_mode(results, mode, title)
    parts.append("")
    for kind, depths in results["kept_bytes"].items():
        sizes = ", ".join(f"{size / 2**20:,.1f} MB at {depth}" for depth, size in depths.items())
        parts.append(f"saved for the backward pass, {LINES[kind]}, by layers: {sizes}")
    return Group(*parts, "", footer(results))


def render_mode(results: dict[str, Any], mode: str, title: str) -> list[Any]:
    """Time and memory of one way of working, how time grows, and which path `window` took."""
    lengths, parts = results["lengths"], []
    names = [side for side in LINES if any(side in each[mode]["seconds"] for each in lengths.values())]
    for unit, cell in (("milliseconds", _milliseconds), ("megabytes above the idle process", _megabytes)):
        rivals = (f"by {RIVALS[rival]}" for rival in RIVALS if rival in names)
        table = make_table("tokens", *names, *rivals, left=0)
        for length, each in lengths.items():
            table.add_row(f"{int(length):,}", *cell(each[mode], names))
        parts += ["", f"{title}: {unit}", table]
    slopes = results["slopes"].get(mode, {})
    powers = ", ".join(f"{side} {slopes[side]:.2f}" for side in names if side in slopes)
    parts += [f"time grows with length to the power of: {powers}"]
    paths = {int(length): each[mode].get("path", {}).get("window") for length, each in lengths.items()}
    if any(paths.values()):
        parts += [f"window went by: {', '.join(f'{length:,} {path}' for length, path in paths.items())}"]
    return parts


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
