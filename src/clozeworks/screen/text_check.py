"""What `clozeworks prepare --check` says of a text."""

from typing import Any

from rich.console import Console
from rich.text import Text

from clozeworks.data.checks.check import Finding, Report
from clozeworks.data.records.wording import pluralize
from clozeworks.screen.console import closing, facts, short, size, span

COLOURS = {"wrong": "bold red", "note": "yellow", "fine": "green"}


def show_check(console: Console, report: Report, command: str) -> None:
    """Facts, then the findings by their gravity, then what to type."""
    console.print(facts(_rows(report.facts)))
    console.print()
    for finding in report.findings:
        _show_finding(console, finding)
    if report.facts["documents"]:
        mended = all(finding.options for finding in report.wrong)
        closing(console, None, command, words=("wrote", "next" if mended else "then"))


def _show_finding(console: Console, finding: Finding) -> None:
    text = Text.assemble((f"{finding.kind:<7}", COLOURS[finding.kind]), finding.text)
    if finding.todo:
        text.append_text(Text.assemble("; ", (finding.todo, "cyan" if finding.options else "default")))
    text = Text("\n" + " " * 7).join(text.wrap(console, max(20, console.width - 7))) if console.is_terminal else text
    console.print(text, soft_wrap=True)


def _rows(counted: dict[str, Any]) -> list[tuple[str, object]]:
    lengths = counted["document_characters"]
    files = f"{pluralize(counted['files'], 'file')}, " if counted["files"] else ""
    rows: list[tuple[str, object]] = [("text", f"{files}{_bytes(counted['bytes'])}")]
    if not counted["documents"]:
        return rows
    documents = pluralize(counted["documents"], "document")
    about = "about " if counted["sampled_characters"] < counted["characters"] else ""
    time = span(max(2, counted["seconds"]))
    rows += [
        ("documents", f"{documents}, {counted['characters']:,} characters, {about}{counted['sentences']:,} sentences"),
        ("lengths", f"characters a document: half have {lengths['50%']:,} or fewer, 5% {lengths['95%']:,} or more"),
        ("characters", f"{counted['different_characters']:,} different ones, {counted['chinese_share']:.1%} Chinese"),
        ("tokens", f"about {short(counted['tokens'])}, as words of language {counted['language']}"),
        ("to prepare", f"roughly {time} on one core, up to {size(counted['memory_bytes'])} of memory"),
    ]
    return rows


def _bytes(count: int) -> str:
    return f"{count:,} bytes" if count < 1e6 else size(count)
