"""clozeworks conformance"""

from rich.table import Table
from rich.text import Text

from clozeworks.commands import named
from clozeworks.commands.arguments import Options
from clozeworks.commands.screen import closing, columns, emit, screen
from clozeworks.evaluate.conformance import Report, as_json, cells, described, measure, real, synthetic, write

COLOURS = {"exact": "green", "agrees": "green", "outside": "bold red", "the text decides": "dim"}
SHORT = ("format", "length", "examples", "tokens", "a row", "padding", "left out", "borders")
WIDE = 110  # columns of a terminal that shows where a number is from, and on how many ours was measured


def run(options: Options) -> int:
    """Print the figures: 0, or 1 if one is outside, which would be a bug of ours."""
    if options.real is None:
        report = measure(synthetic())
    else:
        directory = named.existing(options.real, "a prepared directory")
        report = measure(real(directory), str(options.real))
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
        for figure in group.figures:
            what, paper, cited, ours, n, told = cells(figure)
            verdict = Text(told, COLOURS[figure.verdict])
            table.add_row(*([what, paper, cited, ours, n, verdict] if wide else [what, paper, ours, verdict]))
        console.print()
        console.print(table)
    table = columns(*SHORT, right=SHORT[1:])
    for each in report.formats:
        table.add_row(*described(each))
    console.print()
    console.print(table)
    held = [figure for figure in report.figures if figure.expected is not None]
    console.print(f"\n{len(held) - len(report.outside)} of {len(held)} figures agree with the papers")
    closing(console, wrote, "clozeworks examples bert_mini --data DIR")
