"""clozeworks prepare --check"""

import shlex
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.text import Text

from clozeworks.cli.arguments import Options
from clozeworks.cli.text_options import reading
from clozeworks.data.checks.check import Finding, Report, check
from clozeworks.data.checks.finding import Aim
from clozeworks.data.text.reader import Reading
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.data.tokens.training import KINDS
from clozeworks.screen.console import closing, emit, facts, screen, short, size, span
from clozeworks.screen.progress_bar import Bar

COLOURS = {"wrong": "bold red", "note": "yellow", "fine": "green"}
VOCAB = 8192
FLAGS = ("cased", "dedupe", "unwrap", "overwrite")
# Options that go on as they were given, with their defaults.
VALUES = {
    "corpus": None,
    "tokenizer": "wordpiece",
    "vocab": None,
    "add_tokens": None,
    "lang": None,
    "segmenter": None,
    "heldout": 0.02,
    "field": "text",
    "pairs": None,
    "encoding": "utf-8",
    "errors": "strict",
    "unicode": "none",
    "processes": None,
    "engine": "local",
}


def run(source: Any, options: Options) -> int:
    """Print what `check` finds: 0 if nothing is wrong, 2 if preparing would stop or lose text."""
    console = screen()
    given = Reading(**reading(options))
    trained = options.tokenizer in KINDS
    aim = Aim(
        lang=options.lang or options.corpus,
        tokenizer=None if trained else Tokenizer.load(options.tokenizer),
        kind=options.tokenizer,
        vocab=options.vocab or VOCAB,
        segmenter=options.segmenter,
        heldout=options.heldout,
        dedupe=options.dedupe,
        out=options.out,
        overwrite=options.overwrite,
    )
    with Bar(console, show=not options.json, stages={"check": "looking at the text"}) as bar:
        report = check(source, given, aim=aim, progress=lambda done, total: bar.update("check", done, total))
    command = recommended(options, report)
    if options.json:
        findings = [asdict(finding) for finding in report.findings]
        emit({"facts": report.facts, "findings": findings, "wrong": len(report.wrong), "command": command})
    else:
        tell(console, report, command)
    return 2 if report.wrong else 0


def tell(console: Console, report: Report, command: str) -> None:
    """Facts, then the findings by their gravity, then what to type."""
    console.print(facts(_rows(report.facts)))
    console.print()
    for finding in report.findings:
        _say(console, finding)
    if report.facts["documents"]:
        mended = all(finding.options for finding in report.wrong)
        closing(console, None, command, words=("wrote", "next" if mended else "then"))


def _say(console: Console, finding: Finding) -> None:
    text = Text.assemble((f"{finding.kind:<7}", COLOURS[finding.kind]), finding.text)
    if finding.todo:
        text.append_text(Text.assemble("; ", (finding.todo, "cyan" if finding.options else "default")))
    text = Text("\n" + " " * 7).join(text.wrap(console, max(20, console.width - 7))) if console.is_terminal else text
    console.print(text, soft_wrap=True)


def _rows(found: dict[str, Any]) -> list[tuple[str, object]]:
    lengths = found["document_characters"]
    files = f"{found['files']:,} file{'s' if found['files'] != 1 else ''}, " if found["files"] else ""
    rows: list[tuple[str, object]] = [("text", f"{files}{_bytes(found['bytes'])}")]
    if not found["documents"]:
        return rows
    documents = f"{found['documents']:,} document{'s' if found['documents'] != 1 else ''}"
    about = "about " if found["sampled_characters"] < found["characters"] else ""
    rows += [
        ("documents", f"{documents}, {found['characters']:,} characters, {about}{found['sentences']:,} sentences"),
        ("lengths", f"characters a document: half have {lengths['50%']:,} or fewer, 5% {lengths['95%']:,} or more"),
        ("characters", f"{found['different_characters']:,} different ones, {found['chinese_share']:.1%} Chinese"),
        ("tokens", f"about {short(found['tokens'])}, as words of language {found['language']}"),
        (
            "to prepare",
            f"roughly {span(max(2, found['seconds']))} on one core, up to {size(found['memory_bytes'])} of memory",
        ),
    ]
    return rows


def _bytes(count: int) -> str:
    return f"{count:,} bytes" if count < 1e6 else size(count)


def recommended(options: Options, report: Report) -> str:
    """The command that prepares this text, with what was asked for and what the findings add."""
    words = ["clozeworks", "prepare", *map(str, options.text), "--out", str(options.out or "data")]
    chosen: dict[str, str] = {}
    for name, default in VALUES.items():
        if getattr(options, name) != default:
            chosen[f"--{name.replace('_', '-')}"] = str(getattr(options, name))
    chosen |= {f"--{name}": "" for name in FLAGS if getattr(options, name)}
    chosen |= report.options()
    for name, value in chosen.items():
        words += [name, value] if value else [name]
    return shlex.join(words)
