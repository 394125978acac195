"""clozeworks vectors convert"""

import shlex
from dataclasses import dataclass

from clozeworks.cli.arguments import argument, option
from clozeworks.cli.vectors.table import TableOptions, example_word, note_left_out, open_vectors
from clozeworks.core.errors import InputError


@dataclass(kw_only=True)
class Options(TableOptions):
    """Convert word vectors from one format to another

    The ending is the format: .safetensors, .txt or .vec (text of word2vec), .bin (its bytes). What is read may be
    compressed.

    clozeworks vectors convert GoogleNews-vectors-negative300.bin.gz words.safetensors --limit 200000
    """

    files: list[str] = argument("FILE", "one to read and one to write", nargs="*")
    no_header: bool = option("write text without its first line, as GloVe's files are", False)


def run(options: Options) -> None:
    """Read one format, write another."""
    from clozeworks.screen.console import closing, emit, facts, note, screen
    from clozeworks.vectors.formats import files

    if len(options.files) != 2:
        todo = "for example: clozeworks vectors convert words.bin words.txt"
        given = f"{len(options.files)} files"
        raise InputError("clozeworks vectors convert", given, "one to read and one to write are needed", todo)
    before, after = options.files
    files.check_writable(after, not options.no_header)
    vectors = open_vectors(options, before)
    vectors.save(after, header=not options.no_header)
    left_out = vectors.about.get("skipped", 0)
    if options.json:
        emit({"out": after, "words": len(vectors), "dim": vectors.dim, "skipped": left_out})
        return
    console = screen()
    console.print(facts([("vectors", f"{len(vectors):,} words, {vectors.dim} numbers each")]))
    note_left_out(console, vectors, after)
    if left_out:
        note(console, f"{left_out:,} rows that cannot be used were left out")
    closing(console, after, f"clozeworks vectors similar {shlex.quote(after)} {example_word(vectors)}")
