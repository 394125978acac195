"""Options that the methods of training word vectors share, and the training itself."""

from __future__ import annotations

import math
import shlex
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from clozeworks.cli.arguments import Idle, integer, number, option, random_seed
from clozeworks.cli.text import choose_source
from clozeworks.cli.vectors.table import example_word, note_left_out
from clozeworks.cli.vectors.text import STAGES, WordOptions, how_to_read
from clozeworks.core.bounds import MOST_PROCESSES
from clozeworks.core.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from clozeworks.vectors.phrases import Phrases
    from clozeworks.vectors.table import Vectors

# Options that a trainer calls by the same name; GloVe has not all of them.
SETTINGS = ("dim", "min_count", "max_words", "seed", "workers", "deterministic",
            "window", "negative", "hs", "sample", "epochs")  # fmt: skip


@dataclass(kw_only=True)
class TrainingOptions(WordOptions):
    """What every method has; the default of --learning-rate is the method's own."""

    idle: ClassVar[tuple[Idle, ...]] = (
        Idle(
            ("threshold",),
            lambda options: options.phrase_passes is None,
            "it is about phrases, and none are joined",
            "add --phrase-passes 1",
        ),
    )
    learning_rate: float | None
    out: str | None = option("file to write: .safetensors, .txt, .vec or .bin", metavar="FILE")
    dim: int = integer("dimensions of a vector", 100)
    min_count: int = integer("leave out words that occur less often", 5)
    max_words: int | None = integer("vocabulary size at most", otherwise="all words")
    phrase_passes: int | None = integer("join phrases such as new_york, in N passes", otherwise=0)
    threshold: float = option("score above which two words are a phrase", 10.0, type=number, metavar="X")
    seed: int = random_seed("random seed: another seed, other vectors", 0)
    workers: int | None = integer("number of threads", most=MOST_PROCESSES, otherwise="one a core")
    deterministic: bool = option("use one thread, for the same bytes each time", False)
    no_header: bool = option("write text without its first line, as GloVe's files are", False)


@dataclass(kw_only=True)
class WindowOptions(TrainingOptions):
    """Of the methods that predict words from their neighbours."""

    window: int | None = integer("context window: words on each side", otherwise=5)
    negative: int | None = integer("negative samples for each word", least=0, otherwise=5)
    hs: bool = option("hierarchical softmax instead of negative sampling", False)
    sample: float | None = option(
        "subsampling: thin out words above this frequency", type=number, metavar="T", otherwise="1e-3"
    )
    epochs: int | None = integer("passes over the text", otherwise=5)


def train(options: TrainingOptions, trainer: Callable[..., Vectors], **settings: Any) -> None:
    """Train vectors, save them, and say what came of it; settings that are None or False stay the method's own."""
    from clozeworks.screen.console import closing, emit, screen
    from clozeworks.screen.progress_bar import Bar
    from clozeworks.vectors.formats import files

    name = " ".join(options.words[:2])
    if options.out is None:
        todo = "for example: --out words.safetensors"
        raise InputError(f"clozeworks {name}", "no --out", "a file to write is needed", todo)
    files.check_writable(options.out, not options.no_header)
    settings |= {name: getattr(options, name) for name in SETTINGS if hasattr(options, name)}
    settings |= {"rate": options.learning_rate, "phrases": choose_phrases(options)}
    given = {key: value for key, value in settings.items() if value is not None and value is not False}
    begin, console = time.perf_counter(), screen()
    with Bar(console, show=not options.json, stages=STAGES) as bar:
        source = choose_source(options, name, "words.safetensors")
        made = trainer(source, **given, **how_to_read(options), progress=bar.update)
    seconds = time.perf_counter() - begin
    made.save(options.out, header=not options.no_header)
    if options.json:
        about = {"out": options.out, "vectors": len(made), "dim": made.dim, "seconds": round(seconds, 3)}
        emit({**about, **made.about})
        return
    show_training(console, made, name.split()[1], seconds)
    note_left_out(console, made, options.out)
    out = shlex.quote(options.out)
    similar = f"clozeworks vectors similar {out} {example_word(made)}"
    evaluate = f"clozeworks vectors evaluate {out} --similarity PAIRS --analogies QUESTIONS"
    closing(console, options.out, similar, evaluate)


def choose_phrases(options: TrainingOptions) -> Phrases | None:
    """How phrases are joined, where that is asked for."""
    from clozeworks.vectors.phrases import Phrases

    if options.phrase_passes is None:
        return None
    return Phrases(options.min_count, options.threshold, passes=options.phrase_passes)


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
