"""One page about a model's answers, complete in itself: metrics, classes, plots, the worst mistakes."""

import html
import io
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from clozeworks.core.characters import show_controls
from clozeworks.evaluate.examination import Examination
from clozeworks.evaluate.mistakes import Mistakes
from clozeworks.metrics.classes import Confusion, OfClass
from clozeworks.plots import charts

if TYPE_CHECKING:
    from matplotlib.figure import Figure

POLICY = """<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">"""
SHOWN = 30  # classes that are drawn
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
table { border-collapse: collapse; margin: 1rem 0; }
th, td { padding: .3rem .8rem; text-align: left; vertical-align: top; border-bottom: 1px solid #ddd; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
figure { margin: 1.5rem 0; } svg { max-width: 100%; height: auto; }
.text { white-space: pre-wrap; overflow-wrap: anywhere; }
@media (prefers-color-scheme: dark) { body { background: #181818; color: #ddd; } figure { background: #fff; } }
"""


def page(title: str, facts: Sequence[tuple[str, str]], examination: Examination, wrong: Mistakes) -> str:
    """`facts` are what was measured, by name."""
    parts = [f"<h1>{_safe(title)}</h1>", _table(("", ""), facts), "<h2>Figures</h2>", _figures(examination)]
    if wrong.classes:
        parts += ["<h2>Classes</h2>", _classes(wrong.classes), _drawn(class_bars(wrong.classes))]
    if wrong.confusion is not None and len(wrong.confusion.labels) <= SHOWN:
        parts += ["<h2>What was predicted for what</h2>", _drawn(matrix(wrong.confusion))]
    parts += ["<h2>The worst mistakes</h2>", _worst(wrong)]
    head = f'<meta charset="utf-8">{POLICY}<meta name="viewport" content="width=device-width">'
    head += f"<title>{_safe(title)}</title>"
    body = "".join(f"{part}\n" for part in parts)
    return f'<!doctype html>\n<html lang="en"><head>{head}<style>{STYLE}</style></head>\n<body>\n{body}</body></html>\n'


def _figures(examination: Examination) -> str:
    rows = []
    for name, value in examination.metrics.items():
        low, high = examination.intervals[name]
        rows.append((name.replace("_", " "), f"{value:.4f}", f"{low:.4f} to {high:.4f}"))
    return _table(("figure", "value", "95 % of resampled rows"), rows, numbers=(1,))


def _classes(classes: dict[str, OfClass]) -> str:
    rows = [
        (name, f"{each.precision:.3f}", f"{each.recall:.3f}", f"{each.f1:.3f}", f"{each.support:,}")
        for name, each in classes.items()
    ]
    return _table(("class", "precision", "recall", "F1", "rows"), rows, numbers=(1, 2, 3, 4))


def _worst(wrong: Mistakes) -> str:
    if not wrong.worst:
        return "<p>None.</p>"
    rows = [
        (each.where, "\n".join(f"{name}: {text}" for name, text in each.row.items()), each.right, each.predicted)
        for each in wrong.worst
    ]
    return _table(("row", "given", "right", "predicted"), rows)


def _table(names: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[int] = ()) -> str:
    def cells(row: Sequence[str], kind: str) -> str:
        styles = ["number" if at in numbers else "text" for at in range(len(row))]
        return "".join(f'<{kind} class="{s}">{_safe(value)}</{kind}>' for s, value in zip(styles, row, strict=True))

    head = [f"<tr>{cells(names, 'th')}</tr>"] if any(names) else []
    body = [f"<tr>{cells(row, 'td')}</tr>" for row in rows]
    return f"<table>{''.join([*head, *body])}</table>"


def _safe(text: str) -> str:
    """A text from anywhere as text of the page: no tag, no character that a browser or a terminal obeys."""
    return html.escape(show_controls(str(text))).encode("utf-8", "replace").decode()


# Plots


def _drawn(figure: "Figure") -> str:
    """The figure as a part of the page: letters are paths, so that no font is asked for."""
    import matplotlib

    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "clozeworks", "svg.fonttype": "path"}):
        figure.savefig(buffer, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    text = buffer.getvalue()
    return f"<figure>{text[text.index('<svg') :]}</figure>"


def class_bars(classes: dict[str, OfClass]) -> "Figure":
    """F1 of the classes with the most rows, the best on top."""
    from matplotlib.figure import Figure

    chosen = sorted(classes, key=lambda name: -classes[name].support)[:SHOWN]
    chosen = sorted(chosen, key=lambda name: classes[name].f1)
    figure = Figure(figsize=(7, 1 + 0.3 * len(chosen)), layout="constrained")
    axes = figure.add_subplot()
    values = [classes[name].f1 for name in chosen]
    axes.barh(range(len(chosen)), values, color=charts.COLOURS[0])
    for at, value in enumerate(values):
        axes.annotate(f"{value:.2f}", (value, at), xytext=(4, 0), textcoords="offset points", va="center", fontsize=9)
    axes.set_yticks(range(len(chosen)), _names(chosen), fontfamily=charts.families(), parse_math=False)
    axes.set_xlim(0, 1.08)
    axes.set_xlabel("F1")
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def matrix(confusion: Confusion) -> "Figure":
    """Shares of each class, a row; the counts in the cells."""
    from matplotlib.figure import Figure

    labels, count = _names(confusion.labels), len(confusion.labels)
    shares = confusion.counts / confusion.counts.sum(1, keepdims=True).clip(1)
    figure = Figure(figsize=(2.5 + 0.55 * count, 1.8 + 0.5 * count), layout="constrained")
    axes = figure.add_subplot()
    axes.pcolormesh(shares, cmap="Blues", vmin=0, vmax=1)  # cells as paths: an image would be a picture in the page
    axes.invert_yaxis()
    for i in range(count):
        for j in range(count):
            colour = "white" if shares[i, j] > 0.6 else "#222222"
            axes.text(
                j + 0.5, i + 0.5, f"{confusion.counts[i, j]:,}", ha="center", va="center", fontsize=8, color=colour
            )
    places = [at + 0.5 for at in range(count)]
    how = {"fontfamily": charts.families(), "parse_math": False}
    axes.set_xticks(places, labels, rotation=45, ha="right", **how)
    axes.set_yticks(places, labels, **how)
    axes.set_xlabel("predicted")
    axes.set_ylabel("right")
    return figure


def _names(labels: Sequence[str]) -> list[str]:
    return [charts.without_boxes(label, f"class {at + 1}")[:40] for at, label in enumerate(labels)]
