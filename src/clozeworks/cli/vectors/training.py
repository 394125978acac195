"""Options that the methods of training word vectors share, and the training itself."""

from __future__ import annotations

import math
import shlex
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from clozeworks.cli.arguments import number, option, whole
from clozeworks.cli.vectors.table import example_word, note_left_out
from clozeworks.cli.vectors.text import STAGES, TextOptions, choose_source, how_to_read
from clozeworks.core.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from clozeworks.vectors.phrases import Phrases
    from clozeworks.vectors.table import Vectors


@dataclass(kw_only=True)
class TrainingOptions(TextOptions):
    """What every method has."""

    out: str | None = option("file to write: .safetensors, .txt, .vec or .bin", metavar="FILE")
    dim: int = option("dimensions of a vector", 100, type=whole(), metavar="N")
    min_count: int = option("leave out words that occur less often", 5, type=whole(), metavar="N")
    max_words: int | None = option("vocabulary size at most", type=whole(), metavar="N", otherwise="all words")
    phrase_passes: int | None = option(
        "join phrases such as new_york, in N passes", type=whole(), metavar="N", otherwise=0
    )
    threshold: float = option("score above which two words are a phrase", 10.0, type=number, metavar="X")
    seed: int = option("random seed: another seed, other vectors", 0, type=whole(0), metavar="S")
    workers: int | None = option("number of threads", type=whole(), metavar="N", otherwise="one a core")
    deterministic: bool = option("use one thread, for the same bytes each time", False)
    no_header: bool = option("write text without its first line, as GloVe's files are", False)


@dataclass(kw_only=True)
class WindowOptions(TrainingOptions):
    """Of the methods that predict words from their neighbours."""

    window: int | None = option("context window: words on each side", type=whole(), metavar="N", otherwise=5)
    negative: int | None = option("negative samples for each word", type=whole(0), metavar="N", otherwise=5)
    hs: bool = option("hierarchical softmax instead of negative sampling", False)
    sample: float | None = option(
        "subsampling: thin out words above this frequency", type=number, metavar="T", otherwise="1e-3"
    )
    epochs: int | None = option("passes over the text", type=whole(), metavar="N", otherwise=5)


def train(options: TrainingOptions, trainer: Callable[..., Vectors], **settings: Any) -> None:
    """Train vectors, save them, and say what came of it; settings that are None or False stay the method's own."""
    from clozeworks.screen.console import emit, screen
    from clozeworks.screen.progress_bar import Bar
    from clozeworks.vectors.formats import files

    name = " ".join(options.words[:2])
    if options.out is None:
        todo = "for example: --out words.safetensors"
        raise InputError(f"clozeworks {name}", "no --out", "a file to write is needed", todo)
    files.check_writable(options.out, not options.no_header)
    settings |= {key: getattr(options, key) for key in ("dim", "min_count", "max_words", "seed", "workers")}
    settings |= {"deterministic": options.deterministic, "phrases": choose_phrases(options)}
    given = {key: value for key, value in settings.items() if value is not None and value is not False}
    begin, console = time.perf_counter(), screen()
    with Bar(console, show=not options.json, stages=STAGES) as bar:
        made = trainer(choose_source(options), **given, **how_to_read(options), progress=bar.update)
    seconds = time.perf_counter() - begin
    made.save(options.out, header=not options.no_header)
    if options.json:
        about = {"out": str(options.out), "vectors": len(made), "dim": made.dim, "seconds": round(seconds, 3)}
        emit({**about, **made.about})
        return
    show_training(console, made, name.split()[1], seconds)
    report_file(console, made, options.out)


def choose_phrases(options: TrainingOptions) -> Phrases | None:
    from clozeworks.vectors.phrases import Phrases

    if options.phrase_passes is None:
        return None
    return Phrases(options.min_count, check_threshold(options.threshold), passes=options.phrase_passes)


def check_threshold(threshold: float) -> float:
    if not math.isfinite(threshold):
        raise InputError("--threshold", threshold, "a number is needed", "10 is usual")
    return threshold


def show_training(console: Console, made: Vectors, method: str, seconds: float) -> None:
    """What was made, by which method, in which time."""
    from clozeworks.screen.console import facts, span

    losses = made.about.get("losses") or [math.nan]
    rows = [
        ("vectors", f"{len(made):,} words, {made.dim} numbers each"),
        ("method", f"{method}, {len(losses)} epoch{'s' * (len(losses) > 1)}"),
        ("loss", f"{losses[0]:.4f} in the first epoch, {losses[-1]:.4f} in the last"),
        ("time", span(seconds)),
    ]
    if "words_per_second" in made.about:
        rows.append(("speed", f"{made.about['words_per_second']:,} words a second while training"))
    if "pairs" in made.about:
        rows.insert(1, ("pairs", f"{made.about['pairs']:,} that stand near each other"))
    console.print(facts(rows))


def report_file(console: Console, made: Vectors, path: str) -> None:
    from clozeworks.screen.console import closing

    note_left_out(console, made, path)
    out = shlex.quote(str(path))
    similar = f"clozeworks vectors similar {out} {example_word(made)}"
    closing(console, str(path), similar, f"clozeworks vectors evaluate {out} --similarity PAIRS --analogies QUESTIONS")
