"""clozeworks translate"""

from __future__ import annotations

import dataclasses
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from clozeworks.cli.arguments import BeamOptions, Idle, InferenceOptions, argument, option
from clozeworks.cli.paths import read_lines
from clozeworks.core.atomic_io import STANDARD_OUTPUT
from clozeworks.core.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from clozeworks.inference.text_encoder import TextEncoder
    from clozeworks.inference.translate import Translation


@dataclass(kw_only=True)
class Options(BeamOptions, InferenceOptions):
    """Translate texts with an encoder-decoder

    By beam search; texts of like length are searched together, which changes none of them.

    clozeworks translate run "A man is sleeping."
    clozeworks translate run --file test.en --out test.de
    clozeworks translate run "A man is sleeping." --alignment alignment.svg
    """

    idle: ClassVar[tuple[Idle, ...]] = (
        Idle(("json",), lambda options: options.out in STANDARD_OUTPUT, "the translations go to standard output"),
    )
    text: list[str] = argument("TEXT", "one text or several", nargs="*")
    file: str | None = option("instead of TEXT: one text a line; - for standard input", metavar="FILE")
    out: str | None = option(
        "file or pipe to write the translations to, one a line; - for standard output", metavar="FILE"
    )
    alignment: str | None = option("of one TEXT, draw where the decoder attended: .svg, .png or .pdf", metavar="FILE")


def run(options: Options) -> None:
    """Translate, and write or print what came of it."""
    from rich.text import Text

    from clozeworks.cli import named
    from clozeworks.core import atomic_io
    from clozeworks.plots import charts
    from clozeworks.screen.console import closing, emit, note, screen

    texts = read_texts(options)
    if options.alignment is not None:
        charts.check_ending(options.alignment)
        if len(texts) != 1:
            raise InputError("--alignment", f"{len(texts)} texts", "one text is drawn", "translate it alone")
    encoder = named.model(options.model, options.parts, options.allow_pickle, options.device)
    console = screen()
    how = {"beams": options.beams, "length_penalty": options.length_penalty}
    made = translate_texts(encoder, texts, console=console, show=not options.json, **how)
    if options.out is not None:
        with atomic_io.text_stream(options.out) as stream:
            stream.writelines(f"{one.text}\n" for one in made)
    attended = None if options.alignment is None else draw_alignment(encoder, made[0], options.alignment)
    if options.out in STANDARD_OUTPUT:
        return
    if options.json:
        rows = [dataclasses.asdict(one) for one in made]
        if attended is not None:
            rows[0]["alignment"] = attended
        emit({"model": options.model, **how, "out": options.out, "translations": rows})
        return
    if options.out is None:
        for one in made:
            console.print(Text(one.text), soft_wrap=True)
    cut = sum(one.cut > 0 for one in made)
    if cut:
        note(console, f"{cut:,} of {len(made):,} texts are longer than the model's {encoder.longest:,} positions: cut")
    model = shlex.quote(options.model)
    written = " and ".join(filter(None, [options.out, options.alignment])) or None
    closing(console, written, f"clozeworks evaluate {model} --test PAIRS.jsonl --pairs A,B")


def draw_alignment(encoder: TextEncoder, translation: Translation, path: str) -> dict[str, Any]:
    """Draw where the decoder attended: also the words of both sides, and a row of weights for each written one."""
    from clozeworks.plots import charts

    alignment = encoder.alignment(translation)
    sides = [[encoder.word(token) for token in each] for each in (alignment.source, alignment.target)]
    charts.alignment(alignment.weights, sides[1], sides[0], path, f"{encoder.recipe.name}: where it looked")
    weights = [[round(share, 4) for share in row] for row in alignment.weights]
    return {"source": sides[0], "target": sides[1], "weights": weights}


def read_texts(options: Options) -> list[str]:
    """The texts of the command line, or the lines of a file."""
    if bool(options.text) == (options.file is not None):
        what = "both TEXT and --file" if options.text else "no text"
        todo = 'for example: clozeworks translate run "A cat sleeps."'
        raise InputError("clozeworks translate", what, "a text, or a file with one a line, is needed", todo)
    if options.text:
        return list(options.text)
    return read_lines(options.file or "", "text", "give it some")


def translate_texts(
    encoder: TextEncoder, texts: list[str], *, beams: int, length_penalty: float, console: Console, show: bool
) -> list[Translation]:
    """The translations, with a bar on a terminal while they are made."""
    from clozeworks.screen.progress_bar import Bar

    with Bar(console, show=show, stages={"translations": "translating"}) as bar:
        return encoder.translations(
            texts,
            beams=beams,
            penalty=length_penalty,
            progress=lambda done, total: bar.update("translations", done, total),
        )
