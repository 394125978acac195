"""clozeworks translate"""

import dataclasses
import shlex
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from clozeworks.cli import named
from clozeworks.cli.arguments import Options
from clozeworks.cli.paths import existing
from clozeworks.core import atomic_io
from clozeworks.core.errors import InputError
from clozeworks.inference.text_encoder import TextEncoder
from clozeworks.inference.translate import Translation
from clozeworks.plots import charts
from clozeworks.screen.console import closing, emit, note, screen
from clozeworks.screen.progress_bar import Bar


def run(options: Options) -> None:
    texts = given(options)
    if options.alignment is not None:
        charts.check_ending(options.alignment)
        if len(texts) != 1:
            raise InputError("--alignment", f"{len(texts)} texts", "one text is drawn", "translate it alone")
    encoder = named.model(options.model, options.parts, options.allow_pickle)
    console = screen()
    found = translated(encoder, texts, options.beams, options.penalty, console, show=not options.json)
    if options.out is not None:
        atomic_io.write_text(Path(options.out), "".join(f"{one.text}\n" for one in found))
    looked = None if options.alignment is None else drawn(encoder, found[0], options.alignment)
    if options.json:
        rows = [dataclasses.asdict(one) for one in found]
        if looked is not None:
            rows[0]["alignment"] = looked
        how = {"beams": options.beams, "penalty": options.penalty}
        emit({"model": options.model, **how, "out": options.out, "translations": rows})
        return
    if options.out is None:
        for one in found:
            console.print(Text(one.text), soft_wrap=True)
    cut = sum(one.cut > 0 for one in found)
    if cut:
        note(console, f"{cut:,} of {len(found):,} texts are longer than the model's {encoder.longest:,} positions: cut")
    model = shlex.quote(options.model)
    written = " and ".join(filter(None, [options.out, options.alignment])) or None
    closing(console, written, f"clozeworks evaluate {model} --test PAIRS.jsonl --pairs A,B")


def drawn(encoder: TextEncoder, found: Translation, path: str) -> dict[str, Any]:
    """Draw where the decoder looked, and tell it: the words of both sides, and a row of shares for each written one."""
    alignment = encoder.alignment(found)
    sides = [[encoder.word(token) for token in each] for each in (alignment.source, alignment.target)]
    charts.alignment(alignment.weights, sides[1], sides[0], path, f"{encoder.recipe.name}: where it looked")
    weights = [[round(share, 4) for share in row] for row in alignment.weights]
    return {"source": sides[0], "target": sides[1], "weights": weights}


def given(options: Options) -> list[str]:
    """The texts of the command line, or the lines of a file."""
    if bool(options.text) == (options.file is not None):
        what = "both TEXT and --file" if options.text else "no text"
        todo = 'for example: clozeworks translate run "A cat sleeps."'
        raise InputError("clozeworks translate", what, "a text, or a file with one a line, is needed", todo)
    if options.text:
        return list(options.text)
    try:
        read = sys.stdin.read() if options.file == "-" else _file(options.file).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        todo = "convert it"
        raise InputError(options.file, f"not UTF-8 ({error.reason})", "one text a line is needed", todo) from None
    lines = read.splitlines()
    if not lines:
        raise InputError(options.file, "an empty file", "one text a line is needed", "give it some")
    return lines


def _file(name: str) -> Path:
    path = Path(existing(name, "a file with one text a line"))
    if not path.is_file():
        raise InputError(name, "a directory", "a file with one text a line is needed", "name the file")
    return path


def translated(
    encoder: TextEncoder, texts: list[str], beams: int, penalty: float, console: Console, show: bool
) -> list[Translation]:
    """The translations, with a bar on a terminal while they are made."""
    with Bar(console, show=show, stages={"translations": "translating"}) as bar:
        tell = lambda done, total: bar.update("translations", done, total)  # noqa: E731
        return encoder.translations(texts, beams=beams, penalty=penalty, progress=tell)
