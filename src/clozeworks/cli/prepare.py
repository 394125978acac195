"""clozeworks prepare"""

import shlex
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.text import Text

from clozeworks import corpus
from clozeworks.cli import check
from clozeworks.cli.arguments import Options
from clozeworks.cli.paths import existing
from clozeworks.cli.text_options import reading
from clozeworks.core.errors import InputError
from clozeworks.data.shards.prepare import Prepared, prepare
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.data.tokens.training import KINDS
from clozeworks.screen.console import closing, emit, facts, note, screen
from clozeworks.screen.progress_bar import Bar

VOCAB = 8192


def run(options: Options) -> int | None:
    source = _source(options)
    if options.check:
        return check.run(source, options)
    if options.out is None:
        raise InputError("clozeworks prepare", "no --out", "it is needed", "for example: --out data")
    console, added = screen(), []
    with Bar(console, show=not options.json) as bar:
        done = prepare(
            source,
            options.out,
            tokenizer=tokenizer(options.tokenizer, options.add_tokens, options.vocab, added.append),
            vocab=options.vocab or VOCAB,
            lang=options.lang or options.corpus,
            lowercase=not options.cased,
            segmenter=options.segmenter,
            heldout=options.heldout,
            dedupe=options.dedupe,
            processes=options.processes,
            engine=options.engine,
            overwrite=options.overwrite,
            progress=bar.update,
            **reading(options),
        )
    if options.json:
        emit(as_json(done))
        return
    tell(console, done)
    for text in added:
        note(console, text)
    out = shlex.quote(str(options.out))
    recipe = "transformer_mini" if options.pairs else "bert_mini"
    closing(
        console,
        str(done.out),
        f"clozeworks examples {recipe} --data {out}",
        f"clozeworks pretrain {recipe} --data {out} --out run",
    )


def _source(options: Options) -> Any:
    if bool(options.text) == bool(options.corpus):
        given = "both TEXT and --corpus" if options.text else "no text"
        todo = "for example: clozeworks prepare corpus.txt --out data"
        raise InputError("clozeworks prepare", given, "files of yours or the embedded corpus", todo)
    return corpus.documents(options.corpus) if options.corpus else options.text


def tokenizer(given: str, words: str | None, vocab: int | None, say: Callable[[str], None]) -> str | Tokenizer:
    """A kind to train, or a tokenizer to take, with words added."""
    if given in KINDS and words is None:
        return given
    if given in KINDS:
        todo = "name a directory: --tokenizer DIR"
        raise InputError("--add-tokens", words, "tokens are added to a tokenizer that exists", todo)
    found = Tokenizer.load(given)
    if vocab is not None:
        needed = f"{given} is a tokenizer already, of {found.size:,} pieces"
        raise InputError("--vocab", f"{vocab:,}", needed, "leave --vocab out, or name a kind to train")
    if words is None:
        return found
    file = existing(words, "a file with one word a line")
    try:
        lines = [line.strip() for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    except UnicodeDecodeError as error:
        raise InputError(file, f"not UTF-8 ({error.reason})", "one word a line is needed", "convert it") from None
    except OSError as error:
        raise InputError(file, error.strerror, "a file with one word a line is needed", "name one") from None
    if not lines:
        raise InputError(file, "an empty file", "one word a line is needed", "leave --add-tokens out")
    larger, count = found.add_tokens(lines)
    say(f"{count:,} of {len(set(lines)):,} words were new to the tokenizer and have tokens of their own now")
    return larger


def tell(console: Console, done: Prepared) -> None:
    """The summary screen."""
    manifest = done.manifest
    rows: list[tuple[str, object]] = [(name, _counted(counted)) for name, counted in manifest["splits"].items()]
    vocabulary = manifest["tokenizer"]["size"]
    words, tokens, strange = (
        sum(counted[name] for counted in manifest["splits"].values()) for name in ("words", "tokens", "unknown")
    )
    pieces, unknown = tokens / max(words, 1), strange / max(tokens, 1)
    rows.append(("tokenizer", f"{vocabulary:,} pieces, {pieces:.2f} tokens a word, {unknown:.3%} of them unknown"))
    if manifest["unknowns"]:
        rows.append(("unknown", ", ".join(f"{text} {count:,}" for text, count in manifest["unknowns"])))
    rows.append(("language", f"{manifest['settings']['lang']}, words {_words(manifest)}"))
    dropped = {name: count for name, count in {**manifest["dropped"], **manifest["unicode"]}.items() if count}
    told = [f"{name.replace('_', ' ')} {count:,}" for name, count in dropped.items()]
    rows.append(("left out", ", ".join(told) or "nothing"))
    console.print(facts(rows))
    console.print()
    console.print(histogram(manifest["lengths"]["documents"]))
    for text in done.notes:
        note(console, text)


def _words(manifest: dict[str, Any]) -> str:
    sentences = sum(counted["sentences"] for counted in manifest["splits"].values())
    if manifest["words"]["given"] >= sentences:
        return "as given"
    segmenter = manifest["settings"]["segmenter"]
    return "by the tokenizer's own borders" if segmenter == "none" else f"by {segmenter}"


def histogram(bins: list[list[int]]) -> Text:
    """Documents by their length in tokens."""
    text = Text("tokens a document", style="bold")
    total, most = sum(count for *_, count in bins), max(count for *_, count in bins)
    width = max(len(f"{high:,}") for _, high, _ in bins)
    for low, high, count in bins:
        bar = "█" * max(1, round(32 * count / most))
        text.append(f"\n{low:>{width},} to {high:>{width},}  ", "default")
        text.append(bar, "cyan")
        text.append(f" {count:,} ({count / total:.0%})", "default")
    return text


def _counted(counted: dict[str, int]) -> str:
    names = ("documents", "sentences", "words", "tokens")
    return ", ".join(f"{counted[name]:,} {name if counted[name] != 1 else name[:-1]}" for name in names)


def as_json(done: Prepared) -> dict[str, Any]:
    names = ("splits", "tokenizer", "read", "dropped", "unicode", "words", "unknowns", "lengths", "settings")
    facts = {name: done.manifest[name] for name in names}
    return {"out": str(done.out), **facts, "notes": done.notes, "fingerprint": done.fingerprint}
