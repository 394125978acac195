"""clozeworks prepare"""

import shlex
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from clozeworks import corpus
from clozeworks.commands.arguments import Options
from clozeworks.commands.named import existing
from clozeworks.commands.screen import closing, emit, facts, note, screen
from clozeworks.data.prepare import TRAINED, Prepared, prepare
from clozeworks.data.tokenizer import Tokenizer
from clozeworks.errors import InputError

STAGES = {"survey": "reading", "tokenizer": "training the tokenizer", "shards": "writing shards"}


def run(options: Options) -> None:
    if bool(options.text) == bool(options.corpus):
        given = "both TEXT and --corpus" if options.text else "no text"
        todo = "for example: clozeworks prepare corpus.txt --out data"
        raise InputError("clozeworks prepare", given, "files of yours or the embedded corpus", todo)
    lang = options.lang or options.corpus or "en"
    for path in options.text:
        existing(path, "a file or directory with text")
    console = screen()
    with Bar(console, show=not options.json) as bar:
        done = prepare(
            corpus.documents(options.corpus) if options.corpus else options.text,
            options.out,
            tokenizer=tokenizer(options.tokenizer, options.add_tokens),
            vocab=options.vocab,
            lang=lang,
            lowercase=not options.cased,
            heldout=options.heldout,
            errors=options.errors,
            field=options.field,
            overwrite=options.overwrite,
            progress=bar.update,
        )
    if options.json:
        emit(as_json(done))
        return
    tell(console, done)
    out = shlex.quote(str(options.out))
    closing(
        console,
        str(done.out),
        f"clozeworks examples bert_mini --data {out}",
        f"clozeworks pretrain bert_mini --data {out} --out run",
    )


def tokenizer(given: str, words: str | None) -> str | Tokenizer:
    """A kind to train, or a tokenizer to take, with words added."""
    if given in TRAINED and words is None:
        return given
    if given in TRAINED:
        todo = "name a directory: --tokenizer DIR"
        raise InputError("--add-tokens", words, "tokens are added to a tokenizer that exists", todo)
    found = Tokenizer.load(given)
    if words is None:
        return found
    file = existing(words, "a file with one word a line")
    try:
        lines = [line.strip() for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    except UnicodeDecodeError as error:
        raise InputError(file, f"not UTF-8 ({error.reason})", "one word a line is needed", "convert it") from None
    if not lines:
        raise InputError(file, "an empty file", "one word a line is needed", "leave --add-tokens out")
    return found.add_tokens(lines)[0]


def tell(console: Console, done: Prepared) -> None:
    """The summary screen."""
    rows = [(f"{name}", _counted(counted)) for name, counted in done.manifest["splits"].items()]
    train, vocabulary = done.manifest["splits"]["train"], done.manifest["tokenizer"]["size"]
    pieces, unknown = train["tokens"] / max(train["words"], 1), train["unknown"] / max(train["tokens"], 1)
    rows.append(("tokenizer", f"{vocabulary:,} pieces, {pieces:.2f} tokens a word, {unknown:.3%} of them unknown"))
    dropped = {name: count for name, count in {**done.manifest["dropped"], **done.manifest["unicode"]}.items() if count}
    told = [f"{name.replace('_', ' ')} {count:,}" for name, count in dropped.items()]
    rows.append(("left out", ", ".join(told) or "nothing"))
    console.print(facts(rows))
    for text in done.notes:
        note(console, text)


def _counted(counted: dict[str, int]) -> str:
    names = ("documents", "sentences", "words", "tokens")
    return ", ".join(f"{counted[name]:,} {name if counted[name] != 1 else name[:-1]}" for name in names)


def as_json(done: Prepared) -> dict[str, Any]:
    manifest = done.manifest
    return {
        "out": str(done.out),
        "splits": manifest["splits"],
        "tokenizer": manifest["tokenizer"],
        "dropped": manifest["dropped"],
        "unicode": manifest["unicode"],
        "notes": done.notes,
        "fingerprint": done.fingerprint,
    }


class Bar:
    """What `prepare` is doing, for a terminal; silent elsewhere, since it is soon done."""

    def __init__(self, console: Console, show: bool = True, stages: dict[str, str] = STAGES):
        self.progress = Progress(
            TextColumn("{task.description:<24}"),
            BarColumn(bar_width=24),
            TextColumn("{task.percentage:>3.0f}%"),
            TextColumn("left"),
            TimeRemainingColumn(compact=True),
            console=console,
            transient=True,
            disable=not (show and console.is_terminal),
        )
        self.stages, self.stage = stages, ""

    def __enter__(self) -> "Bar":
        self.progress.start()
        self.task = self.progress.add_task("reading", total=None)
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def update(self, stage: str, done: int, total: int) -> None:
        if stage != self.stage:
            self.stage = stage
            self.progress.reset(self.task, total=total, description=self.stages.get(stage, stage))
        self.progress.update(self.task, completed=done, total=total)
