"""clozeworks vectors phrases"""

import shlex
from dataclasses import dataclass

from clozeworks.cli.arguments import integer, number, option
from clozeworks.cli.text import choose_source
from clozeworks.cli.vectors.text import STAGES, WordOptions, how_to_read


@dataclass(kw_only=True)
class Options(WordOptions):
    """Find phrases: words that occur together

    Collocations such as new_york by falling score, as word2vec scores them.

    clozeworks vectors phrases corpus.txt --out phrases.tsv
    """

    out: str | None = option("file to write all phrases to, with their scores", metavar="FILE")
    min_count: int = integer("leave out words and phrases that occur less often", 5)
    threshold: float = option("score above which two words are a phrase", 10.0, type=number, metavar="X")
    top: int = integer("how many phrases to show", 10)


def run(options: Options) -> None:
    """The phrases of two words by falling score."""
    from rich.text import Text

    from clozeworks.core import atomic_io
    from clozeworks.screen.console import closing, columns, emit, screen
    from clozeworks.screen.progress_bar import Bar
    from clozeworks.vectors.phrases import JOINT, Phrases, scored
    from clozeworks.vectors.reading import read_words

    how, console = Phrases(options.min_count, options.threshold, passes=1), screen()
    with Bar(console, show=not options.json, stages=STAGES) as bar:
        words = read_words(
            choose_source(options, "vectors phrases", "phrases.tsv"), **how_to_read(options), progress=bar.update
        )
        scores = sorted(scored(words, how, how.thresholds[0]).items(), key=lambda item: (-item[1], item[0]))
    rows = [(JOINT.join(words.words[at] for at in pair), score) for pair, score in scores]
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
    typed = " ".join(map(shlex.quote, options.text)) or f"--corpus {options.corpus}"
    closing(console, options.out, f"clozeworks vectors skipgram {typed} --phrase-passes 1 --out words.safetensors")
