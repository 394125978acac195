"""An example in colour: what is hidden and what it was, words, spans, annotated units, and what the example is."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from clozeworks.core.examples import ENTITY_INSIDE, ENTITY_START, NOTHING, PHRASE_INSIDE, PHRASE_START, RaggedBatch
from clozeworks.core.spec import Spec
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.objectives.objective import Segments
from clozeworks.objectives.segments import Pairs, PairStream, SegmentPair, SentenceOrder, SentencePair

STYLES = {"masked": "black on yellow", "random": "white on red", "kept": "black on cyan", "asked": "black on yellow"}
GROUND = ("", "magenta", "")  # segments A, B and what stands behind them
ANSWER, BORDER, MARK = "bold green", "dim", "bold blue"
LEGEND = ("hidden word", "random word", "kept word", "the same")
UNITS = ((PHRASE_START, PHRASE_INSIDE, "‹", "›"), (ENTITY_START, ENTITY_INSIDE, "«", "»"))
NEXT = ("B follows A", "B is from another document")
PAIR_LABELS: dict[type[Segments], tuple[str, str]] = {
    SegmentPair: NEXT,
    SentencePair: NEXT,
    PairStream: ("B follows A", "B is from elsewhere"),
    SentenceOrder: ("in order", "swapped"),
}
# Scripts that put no space between words: kana, Chinese characters and their punctuation, wide forms.
UNSPACED = re.compile(
    "[\u2e80-\u303f\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]"
)


@dataclass(frozen=True, slots=True)
class Piece:
    """A token as it is drawn."""

    text: str
    hidden: str | None  # what is to be predicted
    fate: str  # "", "masked", "random" or "kept"; "asked" where the order or the time hides the answer
    segment: int
    word: bool  # begins a word, or is a special token
    opens: str  # marks of the spans and units that begin before it
    closes: str  # and of those that end behind it
    inside: bool  # of a span
    turn: int | None = None  # its number in the order, where it has one of its own

    @property
    def was(self) -> str:
        """What the text has here."""
        return self.text if self.hidden is None else self.hidden


def pieces(ragged: RaggedBatch, at: int, tokenizer: Tokenizer) -> Iterator[Piece]:
    """The tokens of one example as they are drawn."""
    begin, end = int(ragged.first[at]), int(ragged.first[at + 1])
    opens, closes = marks(ragged, begin, end)
    mask, following = tokenizer.need("mask"), ahead(ragged, begin, end)
    for place in range(begin, end):
        token, label = int(ragged.tokens[place]), int(ragged.labels[place])
        fate = ""
        if label != NOTHING:
            fate = "masked" if token == mask else "kept" if token == label else "random"
        if following:  # what is predicted stands there; of the last token it does not
            fate = "asked" if fate and place == end - 1 else ""
        turn = None
        if ragged.order is not None and (fate or ragged.special[place]):
            fate, turn = "asked" if fate else "", int(ragged.order[place])
        yield Piece(
            text=tokenizer.names["mask"] if fate == "masked" else spelt(tokenizer, token),
            hidden=spelt(tokenizer, label) if fate and turn is None else None,
            fate=fate,
            segment=int(ragged.segment[place]),
            word=bool(ragged.special[place] or ragged.word_starts[place]),
            opens=opens[place - begin],
            closes=closes[place - begin],
            inside=ragged.span is not None and bool(ragged.span[place] >= 0),
            turn=turn,
        )


def ahead(ragged: RaggedBatch, begin: int, end: int) -> bool:
    """Whether what is predicted at each token of an example is the one after it."""
    labels = ragged.labels[begin : end - 1]
    asked = labels != NOTHING
    return bool(asked.any() and ragged.labels[end - 1] != NOTHING) and bool(
        (labels[asked] == ragged.tokens[begin + 1 : end][asked]).all()
    )


def marks(ragged: RaggedBatch, begin: int, end: int) -> tuple[list[str], list[str]]:
    """What opens before and closes behind each token: ‹phrases›, «entities» inside them, {spans} inside both."""
    opens, closes = [""] * (end - begin), [""] * (end - begin)

    def put(first: int, last: int, left: str, right: str) -> None:
        opens[first] += left
        closes[last] = right + closes[last]

    if ragged.units is not None:
        bits = [*map(int, ragged.units[begin:end]), 0]
        for start, inside, left, right in UNITS:
            for first, bit in enumerate(bits):
                if bit & start:
                    last = first
                    while bits[last + 1] & inside and not bits[last + 1] & start:
                        last += 1
                    put(first, last, left, right)
    if ragged.span is not None:
        numbers = [*map(int, ragged.span[begin:end]), -1]
        for first, number in enumerate(numbers):
            if number >= 0 and (first == 0 or numbers[first - 1] != number):
                put(first, first + numbers[first:].count(number) - 1, "{", "}")
    return opens, closes


def spelt(tokenizer: Tokenizer, token: int) -> str:
    """A token as people read it, without the marks of its tokenizer."""
    if token in tokenizer.special_ids:
        return tokenizer.token(token)
    return tokenizer.decode([token]).strip().removeprefix("##") or tokenizer.token(token)


def between(before: Piece, after: Piece, special: frozenset[str], words: bool) -> str:
    """What stands between two tokens: nothing within a word or in Chinese text, else a space; a mark where asked."""
    if before.was in special or after.was in special:
        return " "
    if not after.word:
        return ""
    if words:
        return "|"
    return "" if UNSPACED.match(before.was[-1:]) or UNSPACED.match(after.was[:1]) else " "


def drawn(
    ragged: RaggedBatch,
    at: int,
    tokenizer: Tokenizer,
    segments: Segments | None = None,
    words: bool = False,
    width: int = 80,
) -> list[Text]:
    """A paragraph a segment; what is hidden stands in parentheses behind its place. Then what the example is."""
    special = frozenset(tokenizer.token(token) for token in tokenizer.special_ids)
    heads = ("source  ", "target  ") if isinstance(segments, Pairs) else ("A  ", "B  ", "   ")
    paragraphs: dict[int, list[Text]] = {}
    before: Piece | None = None
    for piece in pieces(ragged, at, tokenizer):
        paragraph = paragraphs.setdefault(piece.segment, [])
        if paragraph and before is not None and before.segment == piece.segment:
            seam = between(before, piece, special, words)
            paragraph[-1].append(seam, BORDER if seam == "|" else "")
        if not paragraph or piece.word or piece.was in special:
            paragraph.append(Text())
        _put(paragraph[-1], piece, special)
        before = piece
    lines: list[Text] = []
    for segment, paragraph in paragraphs.items():
        lines += wrap_words(Text(heads[segment]) if len(paragraphs) > 1 else Text(), paragraph, width)
    return lines + [Text(fact, style="italic") for fact in facts(ragged, at, segments)]


def wrap_words(head: Text, words: list[Text], width: int) -> list[Text]:
    """Lines of whole words, below each other behind their head. A Chinese text has no spaces to break it at."""
    indent = head.cell_len
    lines = [head]
    for word in words:
        if lines[-1].cell_len + cell_len(word.plain.rstrip()) > width and lines[-1].cell_len > indent:
            lines[-1].rstrip()
            lines.append(Text(" " * indent))
        lines[-1].append_text(word)
    return lines


def _put(text: Text, piece: Piece, special: frozenset[str]) -> None:
    text.append(piece.opens, MARK)
    line = " underline" if piece.inside else ""
    if piece.fate:
        text.append(piece.text, STYLES[piece.fate] + line)
        if piece.turn is None:
            text.append(f"({piece.hidden})", ANSWER + line)
    else:
        text.append(piece.text, "dim" if piece.text in special else GROUND[piece.segment])
    if piece.turn is not None:
        text.append(f"({piece.turn})", ANSWER if piece.fate else "dim")
    text.append(piece.closes, MARK)


def facts(ragged: RaggedBatch, at: int, segments: Segments | None) -> Iterator[str]:
    """What an example carries besides its tokens, as its format means it."""
    values = {name: column[at].item() for name, column in ragged.fields.items()}
    if "pair_label" in values:
        label = values["pair_label"]
        meaning = next((meanings for part, meanings in PAIR_LABELS.items() if isinstance(segments, part)), None)
        yield f"pair label {label}" + (f": {meaning[label]}" if meaning else "")
    if "stream" in values:
        way = ", backward" if values.get("backward") else ""
        state = "continues" if values["continues"] else "begins: nothing is remembered"
        yield f"stream {values['stream']}{way}, {state}"
    if "reused" in values:
        blind = "" if ragged.order is None else "; these do not see the rest, which sees them all"
        yield f"the next row continues behind the first {values['reused']} tokens" + blind
    if values.get("cut"):
        yield f"{values['cut']} token{'s' if values['cut'] > 1 else ''} too long for its room, cut away"


def legend(
    console: Console,
    tokenizer: Tokenizer,
    labels: tuple[str, str, str, str] = LEGEND,
    ragged: RaggedBatch | None = None,
    words: bool = False,
) -> None:
    """One line for all colours and marks that these examples may have."""
    hidden, random, kept, same = labels
    parts: list[str | tuple[str, str]] = []
    if ragged is not None and ragged.order is not None:
        seen = " is predicted from what has no number, and from numbers below n"
        parts += [("word", STYLES["asked"]), ("(n)", ANSWER), seen, "   "]
    elif ragged is not None and ahead(ragged, 0, int(ragged.first[1])):
        parts += ["each token is predicted from those before it; behind the last one stands ", ("(the next)", ANSWER)]
    elif ragged is None or (ragged.labels != NOTHING).any():
        parts += [
            (tokenizer.names["mask"], STYLES["masked"]), (f"({hidden})", ANSWER), "   ",
            (random, STYLES["random"]), (f"({hidden})", ANSWER), "   ",
            (kept, STYLES["kept"]), (f"({same})", ANSWER), "   ",
        ]  # fmt: skip
    if ragged is not None and ragged.span is not None:
        parts += [("{", MARK), ("span", "underline"), ("}", MARK), "   "]
    if ragged is not None and ragged.units is not None:
        parts += [("‹", MARK), "phrase", ("›", MARK), "   ", ("«", MARK), "entity", ("»", MARK), "   "]
    if words:
        parts += ["word", ("|", BORDER), "word"]
    if parts:
        text = Text.assemble(*parts)
        text.rstrip()
        console.print(text)


def brief(part: Spec | None) -> str:
    """A part and those of its fields that are not what they are by default; a length is always shown."""
    if part is None:
        return "none"
    usual = type(part)()
    shown = [
        f"{each.name}={brief(value) if isinstance(value, Spec) else repr(value)}"
        for each in fields(part)  # pyright: ignore[reportArgumentType]
        if (value := getattr(part, each.name)) != getattr(usual, each.name) or each.name == "length"
    ]
    return type(part).__name__ + (f"({', '.join(shown)})" if shown else "")
