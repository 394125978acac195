"""Plots that need no screen: PNG, SVG or PDF, chosen by the ending of the file.

No character is ever drawn as an empty box. A text is drawn in matplotlib's own font and, for what that lacks, in the
first Chinese font that is installed; the extra `zh` brings one. A text with a letter that neither of them has gives
way to our English one, for half a title misleads; a symbol (an emoji in a title) is left out alone.
"""

import contextlib
import functools
import importlib.util
import io
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clozeworks.core import atomic_io
from clozeworks.core.characters import OBEYED
from clozeworks.core.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LABELS = {
    "en": {
        "title": "Pretraining",
        "step": "step",
        "loss": "loss",
        "training": "training, each logged step",
        "smoothed": "training, smoothed",
        "heldout": "held-out text",
        "baseline": "word frequencies alone",
    },
    "zh": {
        "title": "预训练",
        "step": "步数",
        "loss": "损失",
        "training": "训练（每次记录）",
        "smoothed": "训练（平滑）",
        "heldout": "留出文本",
        "baseline": "仅用词频",
    },
}
# Formats, and how each leaves out the date: the same rows should give the same file.
DATES: dict[str, dict[str, Any]] = {".png": {}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
COLOURS = ("#4477aa", "#cc6677", "#ddcc77", "#117733", "#aa4499", "#88ccee", "#882255", "#999933")
DASHED: dict[str, Any] = {"color": "#777777", "linestyle": (0, (4, 3)), "linewidth": 1.2}  # a line to compare with
BASE_FONT = "DejaVu Sans"  # comes with matplotlib
# In this order: fonts made for Chinese before those that have Chinese among others.
CHINESE_FONTS = (
    "Noto Sans SC",
    "Noto Sans CJK SC",
    "Source Han Sans SC",
    "Source Han Sans CN",
    "PingFang SC",
    "Microsoft YaHei",
    "SimHei",
    "WenQuanYi Micro Hei",
    "WenQuanYi Zen Hei",
    "Heiti SC",
    "STHeiti",
    "Hiragino Sans GB",
    "Noto Sans CJK JP",
    "Droid Sans Fallback",
    "Arial Unicode MS",
    "Noto Serif CJK SC",
    "SimSun",
    "AR PL UMing CN",
)


def loss_curve(
    rows: Iterable[Mapping[str, Any]],
    path: atomic_io.StrPath,
    title: str | None = None,
    baseline: float | None = None,
    lang: str = "en",
) -> None:
    """Draw the loss of a run from the rows of its `metrics.jsonl`.

    Training rows give a faint line and a smoothed one, rows with `"split": "heldout"` the points of the held-out text,
    `baseline` a dashed line: the loss of always predicting by word frequency.
    """
    write(draw_loss(list(rows), title, baseline, lang), path)


def check_ending(path: atomic_io.StrPath) -> None:
    """Refuse a file that is none of our formats; a caller that computes for long asks first."""
    ending = Path(path).suffix.lower()
    if ending not in DATES:
        raise InputError(path, f"ending {ending!r}", "the ending chooses the format", f"use {', '.join(DATES)}")


def write(figure: "Figure", path: atomic_io.StrPath) -> None:
    """The figure as a file, whole or not at all, the same bytes for the same figure."""
    import matplotlib

    check_ending(path)
    ending, buffer = Path(path).suffix.lower(), io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "clozeworks"}):  # names inside an SVG are random otherwise
        figure.savefig(buffer, format=ending[1:], metadata=DATES[ending])
    atomic_io.write_bytes(path, buffer.getvalue())


def draw_loss(rows: Sequence[Mapping[str, Any]], title: str | None, baseline: float | None, lang: str) -> "Figure":
    """The figure that `loss_curve` writes."""
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    training, heldout = _points(rows, None), _points(rows, "heldout")
    if not training and not heldout:
        raise InputError("rows", "no finite loss", "rows with `step` and `loss` are needed", "look into metrics.jsonl")
    labels = LABELS.get(lang, LABELS["en"])
    labels = labels if all(map(drawable, labels.values())) else LABELS["en"]
    text = {"fontfamily": families(), "parse_math": False}

    figure = new_figure()
    axes = figure.add_subplot()
    if training:
        steps, losses = zip(*training, strict=True)
        axes.plot(steps, losses, color=COLOURS[0], alpha=0.25, linewidth=1, label=labels["training"])
        axes.plot(steps, smooth(losses), color=COLOURS[0], linewidth=2, label=labels["smoothed"])
    if heldout:
        steps, losses = zip(*heldout, strict=True)
        axes.plot(steps, losses, color=COLOURS[1], marker="o", markersize=4.5, linewidth=1.5, label=labels["heldout"])
    if baseline is not None and math.isfinite(baseline):
        axes.axhline(baseline, label=f"{labels['baseline']} ({baseline:.2f})", **DASHED)
    title = labels["title"] if title is None else without_boxes(title, LABELS["en"]["title"])
    axes.set_title(title, loc="left", fontsize=12, pad=10, **text)
    axes.set_xlabel(labels["step"], **text)
    axes.set_ylabel(labels["loss"], **text)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    finish(axes)
    return figure


def new_figure(width: float = 7, height: float = 4.2, title: str = "") -> "Figure":
    """An empty figure of our style, by its inches."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=150, layout="constrained")
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontfamily=families())
    return figure


def head_dots(models: Mapping[str, Sequence[Mapping[str, Any]]], path: atomic_io.StrPath) -> None:
    """How far back the heads of each layer look, a dot a head and a line through the means of the layers."""
    from matplotlib.ticker import MaxNLocator

    figure = new_figure()
    axes = figure.add_subplot()
    for number, (name, layers) in enumerate(models.items()):
        style = line_style(number, name)
        for layer in layers:
            axes.plot([layer["layer"]] * len(layer["spans"]), layer["spans"], ".", color=style["color"], alpha=0.6)
        means = [sum(layer["spans"]) / len(layer["spans"]) for layer in layers]
        axes.plot([layer["layer"] for layer in layers], means, **style)
    axes.set_title("How far back each head looks", loc="left", fontsize=12, pad=10)
    axes.set_xlabel("layer")
    axes.set_ylabel("span, tokens")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    finish(axes)
    write(figure, path)


def layer_lines(
    measures: Mapping[str, Mapping[str, Sequence[float]]], path: atomic_io.StrPath, title: str, unit: str
) -> None:
    """A panel a measure, {measure: {line: values}}, with the layers 1, 2, ... from left to right."""
    from matplotlib.ticker import MaxNLocator

    figure = new_figure(height=2.2 + 2 * len(measures), title=without_boxes(title, unit))
    for number, (measure, lines) in enumerate(measures.items()):
        axes = figure.add_subplot(len(measures), 1, number + 1)
        for line, (name, values) in enumerate(lines.items()):
            axes.plot(range(1, len(values) + 1), values, marker="o", markersize=4, **line_style(line, name))
        axes.set_ylabel(measure)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        if number == len(measures) - 1:
            axes.set_xlabel(unit)
        finish(axes, legend=number == 0)
    write(figure, path)


def alignment(
    weights: Sequence[Sequence[float]], rows: Sequence[str], columns: Sequence[str], path: atomic_io.StrPath, title: str
) -> None:
    """Shares as a grid of squares, a row for each word that was written, the darker the larger."""
    size = [1.6 + 0.32 * len(each) for each in (columns, rows)]
    figure = new_figure(max(size[0], 4.0), max(size[1], 3.0), without_boxes(title, "Alignment"))
    axes = figure.add_subplot()
    axes.imshow(weights, cmap="Blues", vmin=0.0, vmax=1.0, aspect="equal")
    text = {"fontfamily": families(), "parse_math": False, "fontsize": 9}
    names = [[without_boxes(word, "?") for word in each] for each in (columns, rows)]
    axes.set_xticks(range(len(columns)), names[0], rotation=60, ha="left", **text)
    axes.set_yticks(range(len(rows)), names[1], **text)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.spines[:].set_color("#dddddd")
    write(figure, path)


def line_style(number: int, name: str) -> dict[str, Any]:
    """The colour of the line of this number, and its name in the legend."""
    label = without_boxes(name, f"{number + 1}")
    label = f"./{label}" if label.startswith("_") else label  # matplotlib hides such a name
    return {"color": COLOURS[number % len(COLOURS)], "label": label}


def finish(axes: "Axes", legend: bool = True) -> None:
    """Lines to read values by, no frame."""
    axes.grid(axis="y", color="#dddddd", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    if legend:
        for text in axes.legend(frameon=False, prop={"family": families(), "size": 9}).get_texts():
            text.set_parse_math(False)


def smooth(values: Sequence[float]) -> list[float]:
    """Average over about a twentieth of the values around each one: no lag, a steady end."""
    count = len(values)
    sums = [0.0, *itertools.accumulate(values)]
    averages = []
    for here in range(count):
        reach = min(count // 40, here)  # the same on both sides of a steep start
        first, last = here - reach, min(here + reach, count - 1)
        averages.append((sums[last + 1] - sums[first]) / (last + 1 - first))
    return averages


# Fonts


def drawable(text: str) -> bool:
    """Whether every character of the text has a glyph in the fonts that are used."""
    return all(character in " \n" or any(ord(character) in font for font in _coverage()) for character in text)


def without_boxes(text: str, instead: str) -> str:
    """The text without symbols that would be boxes, or that whoever shows it would obey; `instead`, if one of its
    letters would be."""
    if not all(map(drawable, filter(str.isalnum, text))):
        return instead
    return "".join(character for character in text if drawable(character) and ord(character) not in OBEYED)


def families() -> list[str]:
    """Names of the fonts in which texts are drawn, each for the characters that those before it lack."""
    return [BASE_FONT, *([name] if (name := chinese_font()) else [])]


@functools.cache
def chinese_font() -> str | None:
    """Name of the font used for Chinese: one of the system, or that of the extra `zh`, or None."""
    from matplotlib import font_manager

    for register in (lambda: None, _register_extra_font, _register_new_fonts):
        register()
        installed = {entry.name for entry in font_manager.fontManager.ttflist}
        for name in CHINESE_FONTS:
            if name in installed and all(ord(character) in _characters(name) for character in "损失训练预词频"):
                return name
    return None


def _register_extra_font() -> None:
    """Tell matplotlib about the font that the extra `zh` installs, without running the package around it."""
    from matplotlib import font_manager

    package = importlib.util.find_spec("zhplot")
    for folder in (package.submodule_search_locations or []) if package else []:
        for file in Path(folder, "fonts").glob("NotoSansSC-*.ttf"):
            font_manager.fontManager.addfont(file)


def _register_new_fonts() -> None:
    """Tell matplotlib about fonts installed since it made its list, which it keeps in a cache."""
    from matplotlib import font_manager

    listed = {entry.fname for entry in font_manager.fontManager.ttflist}
    for file in font_manager.findSystemFonts():
        if file not in listed:
            with contextlib.suppress(Exception):  # a font that cannot be read is not there
                font_manager.fontManager.addfont(file)


@functools.cache
def _coverage() -> list[frozenset[int]]:
    return [_characters(name) for name in families()]


def _characters(name: str) -> frozenset[int]:
    from matplotlib import font_manager

    file = font_manager.findfont(font_manager.FontProperties(family=[name]), fallback_to_default=False)
    return frozenset(font_manager.get_font(file).get_charmap())


def _points(rows: Iterable[Mapping[str, Any]], split: str | None) -> list[tuple[int, float]]:
    """(step, loss) of the rows of a split that have a finite loss."""
    losses = [(row["step"], row.get("loss")) for row in rows if row.get("split") == split]
    return [(step, loss) for step, loss in losses if isinstance(loss, int | float) and math.isfinite(loss)]
