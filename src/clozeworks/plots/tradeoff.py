"""Quality against size and against speed: every model that was tried, and those that nothing beats."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from clozeworks.core import atomic_io
from clozeworks.plots.charts import COLOURS, check_ending, finish, new_figure, without_boxes, write

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["check_ending", "draw"]

PANELS = (("size", "bytes", 1e-6, "weights on disk, MB"), ("speed", "speed", 1.0, "times the speed of the original"))

LETTER, LINE = 0.0145, 0.04  # of a label, in shares of a panel
SHIFTS = (0.022, -0.025, 0.062, -0.065, 0.105, -0.11)  # where a label may stand, above and below its point


def label_of(row: Mapping[str, Any]) -> str:
    """The step; + where others came before it."""
    return ("+ " if len(row["steps"]) > 1 else "") + without_boxes(row["step"], "?")


def label_points(axes: "Axes", labels: Mapping[tuple[float, float], str]) -> None:
    """A word at each point, above or below where another one stands already."""
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    placed: list[tuple[float, float, float]] = []  # left and right end, and height, in shares of the panel
    for (x, y), text in sorted(labels.items()):
        begin, height = (x - left) / (right - left), (y - low) / (high - low)
        end = begin + LETTER * (len(text) + 1)
        free = (
            shift
            for shift in SHIFTS
            if not any(begin < b and a < end and abs(height + shift - h) < LINE for a, b, h in placed)
        )
        shift = next(free, SHIFTS[0])
        placed.append((begin, end, height + shift))
        place = (x, y + shift * (high - low))
        style: dict[str, Any] = {"fontsize": 7, "color": "#555555", "parse_math": False, "va": "center"}
        axes.annotate(text, place, xytext=(5, 0), textcoords="offset points", **style)


def draw(rows: Sequence[Mapping[str, Any]], path: atomic_io.StrPath, title: str) -> None:
    """Rows as `compress.json` has them: kept ones filled, undone ones hollow, a line through what nothing beats."""
    figure = new_figure(9, 4.2, without_boxes(title, "compress"))
    for number, (name, field, unit, label) in enumerate(PANELS):
        axes = figure.add_subplot(1, 2, number + 1)
        known = [row for row in rows if row.get(field) is not None and row.get("retained") is not None]
        front = sorted((row[field] * unit, row["retained"]) for row in known if name in row["pareto"])
        axes.plot(*zip(*front, strict=True), color=COLOURS[0], linewidth=1.2, alpha=0.6, label="nothing is better")
        for kept, face in ((True, COLOURS[0]), (False, "none")):
            some = [(row[field] * unit, row["retained"]) for row in known if row["kept"] == kept]
            if some:
                axes.scatter(*zip(*some, strict=True), s=30, color=COLOURS[0], facecolor=face, zorder=3,
                             label="kept" if kept else "tried and undone")  # fmt: skip
        axes.margins(0.16, 0.1)
        axes.autoscale_view()
        label_points(axes, {(row[field] * unit, row["retained"]): label_of(row) for row in known})
        axes.axhline(1.0, color="#777777", linestyle=(0, (4, 3)), linewidth=1.0)
        axes.set_xlabel(label)
        axes.set_ylabel("share of the quality kept" if number == 0 else "")
        finish(axes, legend=number == 0)
    write(figure, path)
