"""Masks and formats beside the numbers of the papers, on one page that anybody can make again.

The page is measured on a synthetic text that is the same on every machine, so it is the same page, to the last digit;
or on text of your own, where some results are the text's and get no verdict.
"""

import os
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from clozeworks.core.errors import InputError
from clozeworks.data.shards.corpus import Corpus
from clozeworks.data.tokens.tokenizer import Tokenizer
from studies.conformance.fate import fate_groups
from studies.conformance.formats import Packed, format_groups, packed
from studies.conformance.masks import mask_groups
from studies.conformance.material import Head, Material
from studies.conformance.orders import order_groups
from studies.conformance.results import LIMIT, Group, Result, exact
from studies.conformance.synthetic import Synthetic, vocabulary

DOCUMENTS, SIDES, SEED = 2000, 4000, 1
LEAST, MOST = 10_000, 1_000_000  # tokens of a real text: fewer say nothing, more are not read


@dataclass(frozen=True, slots=True)
class Report:
    text: str  # what it was measured on
    tokens: int
    documents: int
    groups: list[Group]
    formats: list[Packed]

    @property
    def results(self) -> list[Result]:
        return [result for group in self.groups for result in group.results]

    @property
    def outside(self) -> list[Result]:
        """What does not agree with the paper, which no text and no chance explains."""
        return [result for result in self.results if result.verdict == "outside"]


def synthetic() -> Material:
    text, sides = Synthetic.make(DOCUMENTS, SEED), Synthetic.make(SIDES, SEED + 1, sides=True)
    return Material(text, vocabulary(), sides, SEED)


def real(directory: str | os.PathLike[str]) -> Material:
    """The beginning of a prepared text."""
    text = Corpus.open(directory)
    if len(text) < LEAST:
        raise InputError(
            directory, f"{len(text):,} tokens", f"{LEAST:,} are needed to measure anything", "prepare more text"
        )
    two_sided = bool((np.diff(text.documents) == 2).all())
    annotated = text.take(np.array([0]), np.array([1])).units is not None
    head = Head.of(text, MOST)
    return Material(head, Tokenizer.load(directory).vocabulary(), head if two_sided else None, SEED, annotated)


def measure(material: Material, text: str = "synthetic text") -> Report:
    """Every result that this text allows."""
    formats = list(packed(material))
    groups = [*mask_groups(material), *fate_groups(material), *order_groups(material), *format_groups(material)]
    longer = sum(each.too_long for each in formats)
    examples = sum(each.examples for each in formats)
    groups[-1].results.append(exact("every format: examples longer than a row", "0", "", longer, 0, examples))
    groups = [Group(each.title, each.about, [result for result in each.results if result.n]) for each in groups]
    tokens, documents = int(material.text.sentences[-1]), len(material.text.documents) - 1
    return Report(text, tokens, documents, [each for each in groups if each.results], formats)


def as_json(report: Report) -> dict[str, Any]:
    results = [
        {"group": group.title, **asdict(result), "verdict": result.verdict}
        for group in report.groups
        for result in group.results
    ]
    return {
        "text": report.text,
        "tokens": report.tokens,
        "documents": report.documents,
        "results": results,
        "formats": [asdict(each) for each in report.formats],
        "outside": len(report.outside),
    }


def page(report: Report) -> str:
    """The report in Markdown."""
    lines = [
        "# Conformance",
        "",
        "Our masks and formats beside the numbers of the papers, or of their released code where the paper is silent.",
        "",
        _filled(
            f"Measured on {report.text}: {report.tokens:,} tokens in {report.documents:,} documents. A result that is "
            f"drawn has its standard error and agrees if it lies within {LIMIT:.0f} of them; a result that is counted "
            "must be exact. Where the text decides there is no verdict. `n` is the number of things looked at: tokens, "
            "spans, examples, as the row says."
        ),
        "",
        "```bash",
        "python -m studies.conformance --out conformance.md",
        "```",
        "",
        _filled(
            "makes this page again from the synthetic text, the same to the last digit on any machine; a test holds it "
            "so. `python -m studies.conformance --real DIR` measures the same on text that `clozeworks prepare` wrote."
        ),
        "",
    ]
    for group in report.groups:
        lines += [f"## {group.title}", "", _filled(group.about), ""]
        lines += _table(("", "paper", "from", "ours", "n", "verdict"), [cells(result) for result in group.results])
    lines += [
        "## What becomes of a text",
        "",
        _filled(
            "Rows are as long as the format's `length`; shorter examples share one. Left out are the tokens that an "
            "epoch does not show, other than in a second side from elsewhere; over a border are examples with text of "
            "two documents."
        ),
        "",
        *_table(HEADINGS, [described(each) for each in report.formats]),
    ]
    return "\n".join(lines)


def _filled(paragraph: str) -> str:
    return textwrap.fill(paragraph, 120, break_long_words=False, break_on_hyphens=False)


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (headings, ["---"] * len(headings), *rows)] + [""]


HEADINGS = (
    "format", "length", "examples", "tokens an example", "examples a row", "padding", "left out", "over a border"
)  # fmt: skip


def cells(result: Result) -> tuple[str, ...]:
    return result.what, result.paper, result.source, result.measured, f"{result.n:,}", result.description


def described(each: Packed) -> tuple[str, ...]:
    shares = (f"{value:.1%}" if value else "0" for value in (each.padding, each.left_out, each.crossing))
    return (
        each.format, f"{each.length}", f"{each.examples:,}", f"{each.tokens:.1f}", f"{each.examples_a_row:.2f}", *shares
    )  # fmt: skip


def write(report: Report, file: str | os.PathLike[str]) -> None:
    Path(file).write_text(page(report), encoding="utf-8")
