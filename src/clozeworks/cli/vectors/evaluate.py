"""clozeworks vectors evaluate"""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from clozeworks.cli.arguments import Idle, argument, choice, option
from clozeworks.cli.paths import existing
from clozeworks.cli.vectors.table import TableOptions, open_vectors
from clozeworks.core.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console


@dataclass(kw_only=True)
class Options(TableOptions):
    """Evaluate word vectors on similarity and analogies

    Word similarity: Spearman's correlation with human judgements, of files with two words and a number a line.
    Analogies: accuracy, of files with four words a line, in sections. Several files of vectors are compared.

    clozeworks vectors evaluate words.txt --similarity ws353.txt --analogies questions.txt
    """

    idle: ClassVar[tuple[Idle, ...]] = (
        Idle(("method",), lambda options: not options.analogies, "it solves analogies", "add --analogies FILE"),
    )
    files: list[str] = argument("FILE", "files of vectors", nargs="*")
    similarity: list[str] = option("files of word pairs with a judgement each", nargs="+", metavar="FILE")
    analogies: list[str] = option("files of analogy questions, four words a line", nargs="+", metavar="FILE")
    method: str = choice("how analogies are solved: 3CosAdd or 3CosMul", "add", "multiply", default="add")
    cased: bool = option("case-sensitive: do not fold the case of words", False)


def run(options: Options) -> None:
    """A table for each evaluation file, a column for each file of vectors."""
    from clozeworks.screen.console import emit, screen
    from clozeworks.screen.progress_bar import Bar

    if not options.files or not (options.similarity or options.analogies):
        todo = "for example: clozeworks vectors evaluate words.txt --similarity ws353.txt"
        given = "nothing to evaluate on" if options.files else "no file of vectors"
        raise InputError("clozeworks vectors evaluate", given, "vectors and evaluation files are needed", todo)
    for file in (*options.similarity, *options.analogies):
        existing(file, "an evaluation file")
    console, results = screen(), []
    with Bar(console, show=not options.json) as bar:
        for path in options.files:
            bar.update(f"evaluating {Path(path).name}", 0, 1)
            results.append(score(options, path))
    if options.json:
        emit({"files": results})
        return
    show(console, options.files, results)


def score(options: Options, path: str) -> dict[str, Any]:
    """The scores of one file of vectors."""
    from clozeworks.vectors import evaluate

    vectors, fold = open_vectors(options, path), not options.cased
    pairs = [evaluate.similarity(vectors, file, fold=fold) for file in options.similarity]
    method: Any = options.method
    asked = [evaluate.analogies(vectors, file, method, fold=fold) for file in options.analogies]
    take = lambda scored, *names: {name: getattr(scored, name) for name in names}  # noqa: E731
    similarity = {
        title: take(each, "spearman", "pearson", "covered", "pairs")
        for title, each in zip(name_files(options.similarity), pairs, strict=True)
    }
    analogies = {
        title: {
            part.name: take(part, "accuracy", "right", "covered", "questions") for part in (*each.sections, each.total)
        }
        for title, each in zip(name_files(options.analogies), asked, strict=True)
    }
    about = {"vectors": str(path), "words": len(vectors), "dim": vectors.dim}
    return {**about, "similarity": similarity, "analogies": analogies, "method": options.method}


def name_files(paths: Sequence[str]) -> list[str]:
    """The names of files, with as much of their paths as makes them differ."""
    for parts in range(1, max((len(Path(path).parts) for path in paths), default=1) + 1):
        names = ["/".join(Path(path).parts[-parts:]) for path in paths]
        if len(set(names)) == len(set(paths)):
            return names
    return list(paths)


def show(console: Console, paths: Sequence[str], results: Sequence[dict[str, Any]]) -> None:
    """A row for each evaluation file or section, a column for each file of vectors."""
    from rich.text import Text

    from clozeworks.screen.console import closing, columns

    heads = name_files(paths)
    tables = [("spearman", [each["similarity"] for each in results])] if results[0]["similarity"] else []
    tables += [(name, [each["analogies"][name] for each in results]) for name in results[0]["analogies"]]
    for number, (title, scored) in enumerate(tables):
        if number:
            console.print()
        table = columns(title, *heads, "covered", right=(*heads, "covered"))
        for name, first in scored[0].items():
            scores = [each[name] for each in scored]
            covered = ", ".join(dict.fromkeys(f"{one['covered']:,}" for one in scores))  # where they differ, of each
            total = first["pairs"] if "pairs" in first else first["questions"]
            table.add_row(Text(name), *map(_metric, scores), f"{covered} of {total:,}")
        console.print(table)
    closing(console, None, f"clozeworks vectors similar {shlex.quote(str(paths[0]))} WORD")


def _metric(scores: dict[str, Any]) -> str:
    value, form = (scores["spearman"], ".4f") if "spearman" in scores else (scores["accuracy"], ".1%")
    return "-" if math.isnan(value) else format(value, form)
