"""Charts of experiments: bars side by side, and figures that grow along an axis."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from clozeworks.core import atomic_io
from clozeworks.plots import charts

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_bars(axes: "Axes", at: Sequence[float], values: Sequence[Sequence[float]], form: str, **style: Any) -> None:
    """Bars of means, with a dot for each value and the mean above them."""
    means = [sum(each) / len(each) for each in values]
    axes.bar(at, means, **style)
    above = {"xytext": (0, 5), "textcoords": "offset points", "ha": "center", "fontsize": 9}
    for place, mean, each in zip(at, means, values, strict=True):
        axes.plot([place] * len(each), each, ".", color="#222222", markersize=4)
        axes.annotate(format(mean, form), (place, max(each)), **above)


def grouped_bars(
    groups: Mapping[str, Mapping[str, Sequence[float]]],
    path: atomic_io.StrPath,
    title: str,
    unit: str,
    baseline: float | None = None,
    baseline_name: str = "",
) -> None:
    """Bars of means side by side, {group: {bar: values}}, with a dot for each value and a dashed line to compare."""
    names = list(dict.fromkeys(name for bars in groups.values() for name in bars))
    figure = charts.new_figure(max(7, 0.5 * len(groups) * len(names)))
    axes = figure.add_subplot()
    share = 0.8 / len(names)
    for number, name in enumerate(names):
        at = [place + (number - (len(names) - 1) / 2) * share for place in range(len(groups))]
        values = [bars[name] for bars in groups.values()]
        draw_bars(
            axes, at, values, ".2f", width=share * 0.94, color=charts.COLOURS[number % len(charts.COLOURS)], label=name
        )
    if baseline is not None:
        axes.axhline(baseline, label=baseline_name, **charts.DASHED)
    axes.set_xticks(range(len(groups)), [name.replace(" ", "\n") if len(groups) > 6 else name for name in groups])
    axes.set_title(title, loc="left", fontsize=12, pad=10)
    axes.set_ylabel(unit)
    axes.set_ylim(0, 1.12 * max(value for bars in groups.values() for each in bars.values() for value in each))
    charts.finish(axes, legend=False)
    figure.legend(loc="outside lower center", ncols=len(names) + 1, frameon=False, fontsize=9)
    charts.write(figure, path)


def bar_panels(panels: Mapping[str, Mapping[str, Sequence[float]]], path: atomic_io.StrPath, title: str) -> None:
    """A panel a measure side by side, {measure: {bar: values}}: a bar the mean, a dot for each value."""
    figure = charts.new_figure(9, 3.6, title)
    for number, (measure, bars) in enumerate(panels.items(), 1):
        axes = figure.add_subplot(1, len(panels), number)
        colours = [charts.COLOURS[at % len(charts.COLOURS)] for at in range(len(bars))]
        draw_bars(axes, range(len(bars)), list(bars.values()), ".3g", color=colours)
        axes.set_xticks(range(len(bars)), list(bars), rotation=30, ha="right", fontsize=8)
        axes.set_ylim(0, 1.15 * max(value for each in bars.values() for value in each))
        axes.set_title(measure, fontsize=10)
        charts.finish(axes, legend=False)
    charts.write(figure, path)


Growing = Mapping[str, Sequence[tuple[float, float, float, float]]]  # by line: at, value, lowest, highest


def growths(panels: Mapping[str, Growing], path: atomic_io.StrPath, title: str, across: str) -> None:
    """How several things grow, one beside the other, by their units, on axes where each step is a doubling."""
    figure = charts.new_figure(2.4 + 4.6 * len(panels))
    for number, (unit, lines) in enumerate(panels.items(), 1):
        axes = figure.add_subplot(1, len(panels), number)
        if number == 1:
            axes.set_title(title, loc="left", fontsize=12, pad=10)
        _grow(axes, lines, across, unit)
    charts.write(figure, path)


def _grow(axes: "Axes", lines: Growing, across: str, unit: str) -> None:
    from matplotlib.ticker import NullLocator, StrMethodFormatter

    for number, (name, points) in enumerate(lines.items()):
        at, values, lowest, highest = zip(*points, strict=True)
        style = charts.line_style(number, name)
        axes.fill_between(at, lowest, highest, color=style["color"], alpha=0.2, linewidth=0)
        axes.plot(at, values, marker="o", markersize=4.5, **style)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xticks(sorted({at for at, *_ in next(iter(lines.values()))}))
    axes.xaxis.set_minor_locator(NullLocator())
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.set_xlabel(across)
    axes.set_ylabel(unit)
    charts.finish(axes)
