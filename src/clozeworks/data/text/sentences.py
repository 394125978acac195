"""Text into sentences, English and Chinese by the same rules.

A line break always ends a sentence. Inside a line, `.`, `!` and `?` end one before white space and a capital, digit or
opening quote, unless an abbreviation or an initial stands before the full stop; `。！？；…` end one anywhere, and so do
the stops of Arabic, Urdu, Hindi and their neighbours. Closing quotes, brackets and emoji stay with the sentence they
close. Only white space at the borders is dropped.
"""

import re

from clozeworks.core.characters import is_han

LONGEST = 100_000  # characters; `tokenizers` needs 25 s and 1.3 GB for 10 MB in one string

_CLOSERS = "\"'”’»)\\]}」』）】》〉〕"
_EMOJI = "\u2600-\u27bf\ufe0f\u200d\U0001f1e6-\U0001f1ff\U0001f300-\U0001faff"
_ANYWHERE = "。！？；｡؟۔।॥։።။។"  # stops that no abbreviation uses
_OPENERS = "\"'“‘«([{「『（【《〈〔-–—*_`"
# Each alternative consumes all that it looks at, so the scan is linear whatever the text.
_STOP = re.compile(rf"\n|(?P<stop>[.!?…{_ANYWHERE}]++)(?P<close>(?:[{_CLOSERS}]|[ \t]?[{_EMOJI}])*+)(?P<gap>\s*+)")
_LAST_WORD = re.compile(r"(?:^|[^\w.])([\w.]*)$")
_OPENING = re.compile(rf"[{re.escape(_OPENERS)}]*")

_ABBREVIATIONS = (
    " mr mrs ms messrs dr prof st sr jr mt ft rev hon gen col lt capt sgt cmdr adm maj gov sen rep pres vs viz cf al "
    " approx esp incl e.g i.e eg ie ed eds inc ltd co corp bros dept univ assn ave blvd rd "
    " jan feb mar apr jun jul aug sep sept oct nov dec "
)
_BEFORE_NUMBERS = " no nos p pp vol vols ch sec fig figs eq eqs art ca ref refs "  # "No. 5", but "No. He"


def split_sentences(text: str, longest: int = LONGEST) -> list[str]:
    """The sentences of a text, in order, without white space around them; none is longer than `longest`."""
    sentences: list[str] = []
    begin = 0
    for stop in _STOP.finditer(text):
        if stop["stop"] is None or _ends(text, stop):
            _add(sentences, text[begin : stop.end()], longest)
            begin = stop.end()
    _add(sentences, text[begin:], longest)
    return sentences


def _add(sentences: list[str], piece: str, longest: int) -> None:
    piece = piece.strip()
    if len(piece) <= longest:
        if piece:
            sentences.append(piece)
    else:
        sentences.extend(cut(piece, longest))


def cut(text: str, longest: int = LONGEST) -> list[str]:
    """A text in pieces of at most `longest` characters, cut at white space where there is some."""
    pieces: list[str] = []
    begin = 0
    while len(text) - begin > longest:
        end = begin + longest
        space = max(text.rfind(" ", begin + longest // 2, end), text.rfind("，", begin + longest // 2, end))
        end = space + 1 if space >= 0 else end
        pieces.append(text[begin:end].strip())
        begin = end
    pieces.append(text[begin:].strip())
    return [piece for piece in pieces if piece]


def _ends(text: str, stop: re.Match[str]) -> bool:
    """Does a sentence end at this run of stops?"""
    marks, gap, after = stop["stop"], stop["gap"], stop.end()
    if after == len(text) or "\n" in gap:
        return True
    opening = _OPENING.match(text, after)
    first = opening.end() if opening else after
    following = text[first : first + 1]
    if any(mark in _ANYWHERE for mark in marks):
        return True
    if marks.startswith("…"):
        return not following.islower()
    if not gap:  # "好!我": ASCII marks between Chinese characters
        return is_han(following) and (marks[-1] in "!?" or is_han(text[stop.start() - 1 : stop.start()]))
    opened = first > after and not following.islower()
    if not (opened or following.isupper() or following.isdigit() or _is_caseless(following)):
        return False
    return marks != "." or bool(stop["close"]) or not _abbreviates(text, stop.start(), following)


def _abbreviates(text: str, end: int, following: str) -> bool:
    """Is the full stop at `end` part of an abbreviation, an initial or the number of a list item?"""
    before = text[max(0, end - 24) : end]
    last = _LAST_WORD.search(before)
    word = last[1] if last else ""
    if word.isdigit():
        line = text.rfind("\n", 0, end) + 1
        return not text[line : end - len(word)].strip()
    if len(word) == 1 and word.isupper() and word != "I":
        return True
    if "." in word.strip(".") and all(len(part) == 1 for part in word.strip(".").split(".")):
        return True  # U.S. Senate; J.R. Tolkien
    word = f" {word.lower()} "
    return word in _ABBREVIATIONS or (word in _BEFORE_NUMBERS and following.isdigit())


def _is_caseless(character: str) -> bool:
    """A letter of a script without capitals, such as Chinese or Arabic."""
    return character.isalpha() and character.lower() == character.upper()
