"""How commands speak: plain in a pipe, in colour on a terminal, JSON when asked."""

import json
from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text


def screen(stderr: bool = False) -> Console:
    """rich knows about pipes, NO_COLOR and dumb terminals; numbers are not coloured for their own sake."""
    return Console(stderr=stderr, highlight=False)


def emit(value: Any) -> None:
    """One JSON object on one line of standard output."""
    print(json.dumps(value, ensure_ascii=False, allow_nan=False), flush=True)


def facts(rows: Iterable[tuple[str, object]]) -> Table:
    """Names on the left, values on the right."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for name, value in rows:
        table.add_row(name, value if isinstance(value, Text) else str(value))
    return table


def columns(*names: str, right: Iterable[str] = ()) -> Table:
    """A table without lines; the names in `right` are columns of numbers. The first column is never broken."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for name in names:
        whole = name in right or name == names[0]
        table.add_column(name, justify="right" if name in right else "left", no_wrap=whole, overflow="fold")
    return table


def closing(console: Console, wrote: str | None, *commands: str, title: str = "next") -> None:
    """What was written, and what to type now. Commands are never broken over lines: they are there to be copied."""
    console.print()
    if wrote:
        console.print(f"[bold]wrote[/]  {_plain(wrote)}", soft_wrap=True)
    for number, command in enumerate(commands):
        label = f"[bold]{title}[/]" if number == 0 else " " * len(title)
        console.print(f"{label}   [cyan]{_plain(command)}[/]", soft_wrap=True)


def note(console: Console, text: str) -> None:
    """Something the user should hear about."""
    mark = Text("note  ", style="yellow")
    console.print(Padding(Text.assemble(mark, text), (0, 0)), soft_wrap=not console.is_terminal)


def short(number: float) -> str:
    """1234567 -> 1.2 million."""
    for size, name in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million")):
        if abs(number) >= size:
            return f"{number / size:,.1f} {name}"
    return f"{number:,.0f}"


def size(count: float) -> str:
    """Bytes as people say them."""
    return f"{count / 1e9:,.1f} GB" if count >= 1e9 else f"{count / 1e6:,.0f} MB"


def span(seconds: float) -> str:
    """A length of time as people say it."""
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} minutes"
    return f"{seconds / 3600:.1f} hours" if seconds < 48 * 3600 else f"{seconds / 86400:,.1f} days"


def _plain(text: str) -> str:
    return text.replace("[", r"\[")
