"""clozeworks prepare"""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

from clozeworks.cli.arguments import Idle, choice, integer, option, refuse_given, share
from clozeworks.cli.paths import read_lines
from clozeworks.cli.text import TextOptions, choose_source
from clozeworks.core.bounds import MOST_PROCESSES
from clozeworks.core.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from clozeworks.data.checks.check import Report
    from clozeworks.data.shards.prepare import Prepared
    from clozeworks.data.tokens.tokenizer import Tokenizer

VOCAB = 8192


@dataclass(kw_only=True)
class Options(TextOptions):
    """Tokenize text into shards, with a tokenizer trained on it

    Reads .txt (a blank line ends a document), .jsonl, .csv, .tsv, .parquet and .arrow files, plain or compressed (.gz
    .zst .xz .bz2), directories and globs of them, and standard input (-). Interrupted? The same command resumes.

    clozeworks prepare corpus.txt --out data --vocab 8000
    clozeworks prepare more.txt --tokenizer data --out more
    clozeworks prepare 'crawl/*.jsonl.gz' --out data --processes 8 --dedupe
    clozeworks prepare pairs.jsonl --pairs en,de --out data
    clozeworks prepare corpus.txt --check
    """

    idle: ClassVar[tuple[Idle, ...]] = (
        Idle(("pairs", "unwrap"), lambda options: options.corpus, "the embedded text has one form"),
        Idle(("field",), lambda options: options.pairs, "--pairs names the two fields that are read"),
    )
    out: str | None = option("directory to write", metavar="DIR")
    check: bool = option("only look at the text and say what will go wrong", False)
    tokenizer: str = option(
        "train wordpiece, bytes, bpe, unigram, words or chars on the text, or take one from a path",
        "wordpiece",
        metavar="KIND|PATH",
    )
    vocab: int | None = integer("vocabulary size of a new tokenizer", otherwise=VOCAB)
    cased: bool = option("case-sensitive: keep capitals; a bytes tokenizer always does", False)
    add_tokens: str | None = option("words to add to a tokenizer that exists, one a line", metavar="FILE")
    segmenter: str | None = option(
        "Chinese word segmenter: jieba, spaces (words are parted in the text), none, or file.py:function",
        metavar="NAME",
        otherwise="jieba for zh",
    )
    heldout: float = option("share of the documents kept for evaluation", 0.02, type=share, metavar="SHARE")
    dedupe: bool = option("leave out exact copies of documents", False)
    pairs: str | None = option("two fields, source and target: parallel text for translation", metavar="A,B")
    unicode: str = choice("normalise the characters", "none", "nfc", "nfkc", default="none")
    unwrap: bool = option("join the lines of a paragraph of .txt, as in old e-texts", False)
    processes: int | None = integer(
        "number of processes on this machine", most=MOST_PROCESSES, otherwise="as many as pay off"
    )
    engine: str = choice(
        "where processes run; ray: on the cluster that RAY_ADDRESS names, or a local one",
        "local",
        "ray",
        default="local",
    )
    overwrite: bool = option("replace what an earlier prepare wrote to DIR", False)


def run(options: Options) -> int:
    """Prepare the text, or check it alone."""
    from clozeworks.data.shards.prepare import prepare
    from clozeworks.screen.console import closing, emit, note, screen
    from clozeworks.screen.prepared import show_prepared
    from clozeworks.screen.progress_bar import Bar

    source = choose_source(options, "prepare", "data")
    if options.check:
        return check(source, options)
    if options.out is None:
        raise InputError("clozeworks prepare", "no --out", "it is needed", "for example: --out data")
    console, added = screen(), []
    with Bar(console, show=not options.json) as bar:
        done = prepare(
            source,
            options.out,
            tokenizer=choose_tokenizer(options, added.append),
            lowercase=not options.cased,
            processes=options.processes,
            engine=options.engine,  # pyright: ignore[reportArgumentType]
            progress=bar.update,
            **what_to_make(options),
            **how_to_read(options),
        )
    if options.json:
        emit(as_json(done))
        return 0
    show_prepared(console, done)
    for text in added:
        note(console, text)
    out = shlex.quote(str(options.out))
    recipe = "transformer_mini" if options.pairs else "bert_mini"
    examples = f"clozeworks examples {recipe} --data {out}"
    closing(console, str(done.out), examples, f"clozeworks pretrain {recipe} --data {out} --out run")
    return 0


def how_to_read(options: Options) -> dict[str, Any]:
    """How the text is to be read, as `prepare` and `check` take it."""
    pairs = None
    if options.pairs is not None:
        pairs = tuple(name.strip() for name in options.pairs.split(","))
        if len(pairs) != 2 or not all(pairs) or pairs[0] == pairs[1]:
            needed = "two different field names are needed"
            raise InputError("--pairs", options.pairs, needed, "for example: --pairs en,de")
    names = ("field", "encoding", "errors", "unicode", "unwrap")
    return {"pairs": pairs, **{name: getattr(options, name) for name in names}}


def what_to_make(options: Options) -> dict[str, Any]:
    """What the text is to become, as `prepare` and `check` take it."""
    names = ("segmenter", "heldout", "dedupe", "overwrite")
    given = {name: getattr(options, name) for name in names}
    return {"lang": options.lang or options.corpus, "vocab": options.vocab or VOCAB, **given}


def choose_tokenizer(options: Options, say: Callable[[str], None]) -> str | Tokenizer:
    """A kind to train, or a tokenizer to take, with words added."""
    from clozeworks.data.tokens.tokenizer import Tokenizer
    from clozeworks.data.tokens.training import KINDS

    given, words = options.tokenizer, options.add_tokens
    if given in KINDS and words is None:
        return given
    if given in KINDS:
        todo = "name a directory: --tokenizer DIR"
        raise InputError("--add-tokens", words, "tokens are added to a tokenizer that exists", todo)
    ready = Tokenizer.load(given)
    needed = f"{given} is a tokenizer already, of {ready.size:,} pieces"
    refuse_given(options, ("vocab", "cased"), needed, "leave it out, or name a kind to train")
    if words is None:
        return ready
    lines = [line.strip() for line in read_lines(words, "word", "leave --add-tokens out") if line.strip()]
    larger, count = ready.add_tokens(lines)
    say(f"{count:,} of {len(set(lines)):,} words were new to the tokenizer and have tokens of their own now")
    return larger


def as_json(done: Prepared) -> dict[str, Any]:
    """What --json prints of what was prepared."""
    names = ("splits", "tokenizer", "read", "dropped", "unicode", "words", "unknowns", "lengths", "settings")
    kept = {name: done.manifest[name] for name in names}
    return {"out": str(done.out), **kept, "notes": done.notes, "fingerprint": done.fingerprint}


def check(source: Any, options: Options) -> int:
    """Print what is wrong with the text: 0 if nothing is, 2 if preparing would stop or lose text."""
    from clozeworks.data.checks.check import check
    from clozeworks.data.checks.finding import Aim
    from clozeworks.data.text.reader import Reading
    from clozeworks.screen.console import emit, screen
    from clozeworks.screen.progress_bar import Bar
    from clozeworks.screen.text_check import show_check

    console = screen()
    reading = Reading(**how_to_read(options))
    chosen = choose_tokenizer(options, lambda said: None)
    aim = Aim(
        tokenizer=None if isinstance(chosen, str) else chosen,
        kind=options.tokenizer,
        out=options.out,
        **what_to_make(options),
    )
    with Bar(console, show=not options.json, stages={"check": "looking at the text"}) as bar:
        report = check(source, reading, aim=aim, progress=lambda done, total: bar.update("check", done, total))
    command = recommended(options, report)
    if options.json:
        findings = [asdict(finding) for finding in report.findings]
        emit({"facts": report.facts, "findings": findings, "wrong": len(report.wrong), "command": command})
    else:
        show_check(console, report, command)
    return 2 if report.wrong else 0


def recommended(options: Options, report: Report) -> str:
    """The command that prepares this text, with what was asked for and what the findings add."""
    words = ["clozeworks", "prepare", *map(str, options.text), "--out", str(options.out or "data")]
    chosen: dict[str, str] = {}
    for field in fields(options):
        value = getattr(options, field.name)
        if field.name in options.given - {"out", "check", "json"}:
            chosen[f"--{field.name.replace('_', '-')}"] = "" if value is True else str(value)
    chosen |= report.options()
    for name, value in chosen.items():
        words += [name, value] if value else [name]
    return shlex.join(words)
