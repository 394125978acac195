"""Mistakes a user can mend: one sentence, exit code 2, no traceback."""

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """Bad input, reported in four parts: where it is, what was given, what is needed, what to do.

    >>> print(InputError("corpus.txt", "an empty file", "at least one document is needed", "point at a file with text"))
    corpus.txt: an empty file; at least one document is needed; point at a file with text
    """

    def __init__(self, where: object, given: object, needed: str, todo: str):
        self.where, self.given, self.needed, self.todo = str(where), str(given), needed, todo
        super().__init__(self.sentence())

    def sentence(self) -> str:
        return f"{self.where}: {self.given}; {self.needed}; {self.todo}"

    def __reduce__(self):  # an error must survive the way back from a worker process
        return type(self), (self.where, self.given, self.needed, self.todo)


class RecipeError(InputError):
    """A recipe that cannot be built, named by the path of the field that has to change."""

    def sentence(self) -> str:
        return f"{self.where} = {self.given}: {self.needed}; {self.todo}"


def is_panic(error: BaseException) -> bool:
    """Whether a library written in Rust gave up; its class cannot be imported, and is no Exception."""
    return type(error).__name__ == "PanicException"


def suggest(word: str, known: Iterable[str]) -> str:
    """What to do about a misspelt word: the nearest known ones, or all of them."""
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=3, cutoff=0.6)
    if close:
        return "did you mean " + " or ".join(close) + "?"
    return "choose one of " + ", ".join(names)
