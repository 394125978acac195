"""The command: `python -m studies.conformance --out docs/conformance.md`."""

import argparse
import sys
from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from clozeworks.cli.paths import existing
from clozeworks.core.errors import InputError
from clozeworks.screen.console import closing, columns, emit, screen
from studies.conformance.report import Report, as_json, cells, described, measure, real, synthetic, write

COLOURS = {"exact": "green", "agrees": "green", "outside": "bold red", "the text decides": "dim"}
SHORT = ("format", "length", "examples", "tokens", "a row", "padding", "left out", "borders")
WIDE = 110  # columns of a terminal that shows where a number is from, and on how many ours was measured


def main(words: Sequence[str] | None = None) -> int:
    """Print the results: 0, 1 if one is outside, which would be a bug of ours, 2 for bad input."""
    parser = argparse.ArgumentParser(
        prog="python -m studies.conformance",
        description="Compare our masks and formats with the numbers of their papers, on a synthetic text that is the "
        "same on every machine, or on text of your own.",
    )
    parser.add_argument("--real", metavar="DIR", help="a prepared directory instead of the synthetic text")
    parser.add_argument("--out", metavar="FILE.md", help="write a page, too")
    parser.add_argument("--json", action="store_true", help="print one JSON object on one line")
    options = parser.parse_args(words)
    try:
        if options.real is None:
            report = measure(synthetic())
        else:
            report = measure(real(existing(options.real, "a prepared directory")), str(options.real))
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if options.out:
        write(report, options.out)
    if options.json:
        emit(as_json(report))
    else:
        tell(report, options.out)
    return 1 if report.outside else 0


def tell(report: Report, wrote: str | None) -> None:
    console = screen()
    console.print(f"measured on {report.text}: {report.tokens:,} tokens in {report.documents:,} documents")
    wide = console.width >= WIDE
    for group in report.groups:
        table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
        table.add_column(group.title)
        for name in ("paper", "from", "ours", "n", "verdict") if wide else ("paper", "ours", "verdict"):
            table.add_column(name, justify="right" if name in ("ours", "n") else "left", no_wrap=True)
        for result in group.results:
            what, paper, cited, ours, n, word = cells(result)
            verdict = Text(word, COLOURS[result.verdict])
            table.add_row(*([what, paper, cited, ours, n, verdict] if wide else [what, paper, ours, verdict]))
        console.print()
        console.print(table)
    table = columns(*SHORT, right=SHORT[1:])
    for each in report.formats:
        table.add_row(*described(each))
    console.print()
    console.print(table)
    held = [result for result in report.results if result.expected is not None]
    console.print(f"\n{len(held) - len(report.outside)} of {len(held)} results agree with the papers")
    closing(console, wrote, "clozeworks examples bert_mini --data DIR")


if __name__ == "__main__":
    sys.exit(main())
