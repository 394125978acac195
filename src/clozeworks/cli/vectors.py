"""clozeworks vectors"""

import inspect
import math
import shlex
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.text import Text

from clozeworks import corpus
from clozeworks.cli import declared_vectors
from clozeworks.cli.arguments import Options, Parser
from clozeworks.cli.declared_vectors import ASKING, METHODS, OPTIONS
from clozeworks.cli.paths import existing
from clozeworks.core import atomic_io
from clozeworks.core.errors import InputError
from clozeworks.data.text.documents import Reading
from clozeworks.screen.console import closing, columns, emit, facts, note, screen, span
from clozeworks.screen.progress_bar import Bar
from clozeworks.vectors import evaluate, formats
from clozeworks.vectors.reading import read_words
from clozeworks.vectors.search import unit
from clozeworks.vectors.table import Vectors, load_vectors

STAGES = {
    "words": "reading",
    "pairs": "counting pairs",
    "merge": "sorting pairs",
    "fit": "fitting",
    "train": "training",
}


def run(options: Options) -> None:
    refuse_others(options)
    if options.what in METHODS:
        return train(options)
    return {"phrases": phrases, "evaluate": judge, "similar": similar, "convert": convert}[options.what](options)


def refuse_others(options: Options) -> None:
    """An option that this one has no use for is told, not passed over."""
    declared_vectors.vectors(parser := Parser("vectors", "", ()))
    usual = vars(parser.parse_args([options.what]))
    known = OPTIONS.get(options.what, [name for name in usual if name not in ASKING])
    strange = [f"--{name.replace('_', '-')}" for name, value in usual.items()
               if name not in (*known, "what", "given", "json") and getattr(options, name) != value]  # fmt: skip
    if strange:
        where, needed = f"clozeworks vectors {options.what}", f"{options.what} has no such setting"
        raise InputError(where, ", ".join(strange), needed, "leave it out")


def train(options: Options) -> None:
    if options.out is None:
        todo = "for example: --out words.safetensors"
        raise InputError(f"clozeworks vectors {options.what}", "no --out", "a file to write is needed", todo)
    formats.check_writable(options.out, not options.no_header)
    begin, console = time.perf_counter(), screen()
    with Bar(console, show=not options.json, stages=STAGES) as bar:
        made = trainer(options)(source(options), **settings(options), **reading(options), progress=bar.update)
    seconds = time.perf_counter() - begin
    made.save(options.out, header=not options.no_header)
    told = {"out": str(options.out), "vectors": len(made), "dim": made.dim, "seconds": round(seconds, 3)}
    if options.json:
        emit({**told, **made.about})
        return
    losses = made.about.get("losses") or [math.nan]
    rows = [
        ("vectors", f"{len(made):,} words, {made.dim} numbers each"),
        ("method", f"{options.what}, {len(losses)} epoch{'s' * (len(losses) > 1)}"),
        ("loss", f"{losses[0]:.4f} in the first epoch, {losses[-1]:.4f} in the last"),
        ("time", span(seconds)),
    ]
    if "words_per_second" in made.about:
        rows.append(("speed", f"{made.about['words_per_second']:,} words a second while training"))
    if "pairs" in made.about:
        rows.insert(1, ("pairs", f"{made.about['pairs']:,} that stand near each other"))
    console.print(facts(rows))
    tell_left(console, made, options.out)
    out = shlex.quote(str(options.out))
    closing(
        console,
        str(options.out),
        f"clozeworks vectors similar {out} {example(made)}",
        f"clozeworks vectors evaluate {out} --similarity PAIRS --analogies QUESTIONS",
    )


def trainer(options: Options) -> Callable[..., Vectors]:
    """The function of a method; what is compiled is imported only now."""
    if options.what == "glove":
        from clozeworks.vectors.least_squares import least_squares

        return least_squares
    from clozeworks.vectors import train

    return train.cbow if options.what == "cbow" or options.continuous else train.skipgram


def settings(options: Options) -> dict[str, Any]:
    """What was asked for and the method knows; what was left out is its own default."""
    names = ("dim", "window", "negative", "hs", "sample", "min_count", "max_words", "epochs", "rate", "x_max", "seed")
    asked = {name: getattr(options, name) for name in (*names, "workers", "deterministic")}
    asked |= {"memory": options.memory and options.memory << 20, "phrases": wanted_phrases(options)}
    grams = {name: getattr(options, name) for name in ("shortest", "longest", "buckets")}
    grams = {name: value for name, value in grams.items() if value is not None}
    if options.what == "fasttext":
        from clozeworks.vectors.subwords import Subwords

        asked["subwords"] = Subwords(**grams)
    else:
        asked |= {**grams, "continuous": options.continuous}
    asked = {name: value for name, value in asked.items() if value is not None and value is not False}
    known = inspect.signature(trainer(options)).parameters
    if strange := [f"--{name.replace('_', '-')}" for name in asked if name not in known]:
        needed = f"{options.what} has no such setting"
        raise InputError(f"clozeworks vectors {options.what}", ", ".join(strange), needed, "leave it out")
    return asked


def reading(options: Options) -> dict[str, Any]:
    how = Reading(field=options.field, encoding=options.encoding, errors=options.errors)
    given = {"lang": options.lang or options.corpus, "lowercase": not options.cased, "segmenter": options.segmenter}
    given |= {"marks": not options.no_marks}
    return {**given, "reading": how, "processes": options.processes, "engine": options.engine}


def source(options: Options) -> Any:
    if bool(options.given) == bool(options.corpus):
        given = "both files and --corpus" if options.given else "no text"
        todo = f"for example: clozeworks vectors {options.what} corpus.txt --out words.safetensors"
        raise InputError(f"clozeworks vectors {options.what}", given, "text of yours or the embedded corpus", todo)
    return corpus.documents(options.corpus) if options.corpus else options.given


def wanted_phrases(options: Options) -> Any:
    if options.phrases is None and options.what != "phrases":
        return None
    from clozeworks.vectors.phrases import Phrases

    if not math.isfinite(options.threshold):
        raise InputError("--threshold", options.threshold, "a number is needed", "10 is usual")
    return Phrases(options.min_count, options.threshold, passes=options.phrases or 1)


def phrases(options: Options) -> None:
    """The phrases of the first pass by falling score."""
    from clozeworks.vectors.phrases import JOINT, scored

    how, console = wanted_phrases(options), screen()
    with Bar(console, show=not options.json, stages=STAGES) as bar:
        words = read_words(source(options), **reading(options), progress=bar.update)
        found = sorted(scored(words, how, how.thresholds[0]).items(), key=lambda item: (-item[1], item[0]))
    rows = [(JOINT.join(words.words[at] for at in pair), score) for pair, score in found]
    if options.out is not None:
        atomic_io.write_text(options.out, "".join(f"{phrase}\t{score:.6g}\n" for phrase, score in rows))
    if options.json:
        emit({"phrases": len(rows), "top": dict(rows[: options.top]), "out": options.out})
        return
    table = columns("phrase", "score", right=("score",))
    for phrase, score in rows[: options.top]:
        table.add_row(Text(phrase), f"{score:,.1f}")
    console.print(table if rows else "no phrases; try a lower --threshold")
    console.print(f"\n{len(rows):,} phrases of two words in {words.read:,} words")
    typed = " ".join(map(shlex.quote, options.given)) or f"--corpus {options.corpus}"
    closing(console, options.out, f"clozeworks vectors skipgram {typed} --phrases 1 --out words.safetensors")


def opened(options: Options, path: str) -> Vectors:
    if options.errors == "replace":
        raise InputError("--errors", "replace", "vectors are strict or skip", "use skip to leave faulty rows out")
    return load_vectors(existing(path, "a file of vectors"), options.limit, errors=options.errors)


def judge(options: Options) -> None:
    if not options.given or not (options.similarity or options.analogies):
        todo = "for example: clozeworks vectors evaluate words.txt --similarity ws353.txt"
        given = "nothing to judge by" if options.given else "no file of vectors"
        raise InputError("clozeworks vectors evaluate", given, "vectors and judged files are needed", todo)
    for file in (*options.similarity, *options.analogies):
        existing(file, "a file of judged words")
    console, results = screen(), []
    with Bar(console, show=not options.json) as bar:
        for path in options.given:
            bar.update(f"judging {Path(path).name}", 0, 1)
            results.append(judged(options, path))
    if options.json:
        emit({"files": results})
        return
    tell(console, options.given, results)


def judged(options: Options, path: str) -> dict[str, Any]:
    """The figures of one file of vectors."""
    vectors, fold = opened(options, path), not options.cased
    pairs = [evaluate.similarity(vectors, file, fold=fold) for file in options.similarity]
    asked = [evaluate.analogies(vectors, file, options.method, fold=fold) for file in options.analogies]
    names = ("spearman", "pearson", "covered", "pairs")
    similarity = {
        title: {name: getattr(each, name) for name in names}
        for title, each in zip(titles(options.similarity), pairs, strict=True)
    }
    analogies = {
        title: {part.name: _section(part) for part in (*each.sections, each.total)}
        for title, each in zip(titles(options.analogies), asked, strict=True)
    }
    about = {"vectors": str(path), "words": len(vectors), "dim": vectors.dim}
    return {**about, "similarity": similarity, "analogies": analogies, "method": options.method}


def titles(paths: Sequence[str]) -> list[str]:
    """The names of files, with as much of their paths as tells them apart."""
    for parts in range(1, max((len(Path(path).parts) for path in paths), default=1) + 1):
        found = ["/".join(Path(path).parts[-parts:]) for path in paths]
        if len(set(found)) == len(set(paths)):
            return found
    return list(paths)


def _section(part: evaluate.Section) -> dict[str, Any]:
    names = ("accuracy", "right", "covered", "questions")
    return {name: getattr(part, name) for name in names}


def tell(console: Console, paths: Sequence[str], results: Sequence[dict[str, Any]]) -> None:
    """A row for each judged file or section, a column for each file of vectors."""
    heads = titles(paths)
    if results[0]["similarity"]:
        table = columns("spearman", *heads, "found", right=(*heads, "found"))
        for name, first in results[0]["similarity"].items():
            found = [each["similarity"][name] for each in results]
            told = [_figure(one["spearman"], 4) for one in found]
            table.add_row(Text(name), *told, _found([(one["covered"], first["pairs"]) for one in found]))
        console.print(table)
    for name, sections in results[0]["analogies"].items():
        console.print()
        table = columns(name, *heads, "found", right=(*heads, "found"))
        for part, first in sections.items():
            found = [each["analogies"][name][part] for each in results]
            told = [_figure(one["accuracy"], None) for one in found]
            table.add_row(Text(part), *told, _found([(one["covered"], first["questions"]) for one in found]))
        console.print(table)
    closing(console, None, f"clozeworks vectors similar {shlex.quote(str(paths[0]))} WORD")


def _figure(value: float, digits: int | None) -> str:
    if math.isnan(value):
        return "-"
    return f"{value:.1%}" if digits is None else f"{value:.{digits}f}"


def _found(counts: Sequence[tuple[int, int]]) -> str:
    """Of each file of vectors, where they differ."""
    total = counts[0][1]
    return f"{', '.join(dict.fromkeys(f'{covered:,}' for covered, _ in counts))} of {total:,}"


def similar(options: Options) -> None:
    if not options.given or (len(options.given) < 2 and not options.minus):
        todo = "for example: clozeworks vectors similar words.txt king"
        given = "no word" if options.given else "no file of vectors"
        raise InputError("clozeworks vectors similar", given, "a file and a word are needed", todo)
    path, *words = options.given
    vectors = opened(options, path)
    if not options.cased:
        words, minus = ([_spelt(vectors, word) for word in each] for each in (words, options.minus))
    else:
        minus = options.minus
    near, far = ([_met(vectors, word) for word in each] for each in (words, minus))
    found = vectors.most_similar(near, far, options.top)
    if not found:
        given = f"all of its {len(vectors):,} words are asked for"
        raise InputError(path, given, "another word is needed to be near", "ask for fewer words, or a larger --limit")
    if options.json:
        emit({"words": words, "minus": minus, "similar": dict(found)})
        return
    console = screen()
    table = columns("word", "cosine", right=("cosine",))
    for word, score in found:
        table.add_row(Text(word), f"{score:.4f}")
    console.print(table)
    closing(console, None, f"clozeworks vectors similar {shlex.quote(path)} {shlex.quote(found[0][0])}")


def _met(vectors: Vectors, word: str) -> str | np.ndarray:
    """A word, or the direction of one that has n-grams only."""
    if word in vectors or not vectors.more:
        return word
    from clozeworks.vectors.subwords import vector_of

    return unit(vector_of(vectors, word))[0]


def _spelt(vectors: Vectors, word: str) -> str:
    """A word as the vectors have it: vectors of lower-cased text know no capitals."""
    plain = vectors.more and not any(each != each.lower() for each in vectors.words)
    return word.lower() if word not in vectors and (plain or word.lower() in vectors) else word


def convert(options: Options) -> None:
    if len(options.given) != 2:
        todo = "for example: clozeworks vectors convert words.bin words.txt"
        given = f"{len(options.given)} files"
        raise InputError("clozeworks vectors convert", given, "one to read and one to write are needed", todo)
    before, after = options.given
    formats.check_writable(after, not options.no_header)
    vectors = opened(options, before)
    vectors.save(after, header=not options.no_header)
    left_out = vectors.about.get("skipped", 0)
    if options.json:
        emit({"out": after, "words": len(vectors), "dim": vectors.dim, "skipped": left_out})
        return
    console = screen()
    console.print(facts([("vectors", f"{len(vectors):,} words, {vectors.dim} numbers each")]))
    tell_left(console, vectors, after)
    if left_out:
        note(console, f"{left_out:,} rows that cannot be used were left out")
    closing(console, after, f"clozeworks vectors similar {shlex.quote(after)} {example(vectors)}")


def tell_left(console: Console, vectors: Vectors, out: str) -> None:
    """What a format has no place for."""
    if vectors.more and formats.ending_of(out) != formats.TENSORS:
        note(console, f"n-grams are kept in {formats.TENSORS} alone: here words that were never met have no vector")


def example(vectors: Vectors) -> str:
    """A word to try: a frequent one that is not among the shortest."""
    some = vectors.words[:2000]
    long = [word for word in some if word.isalpha() and len(word) > (4 if word.isascii() else 1)]
    return shlex.quote((long or some)[0])
