"""How examples are wrap_words out on a screen."""

import numpy as np
from rich.text import Text

from clozeworks.core.examples import ENTITY_INSIDE, ENTITY_START, PHRASE_INSIDE, PHRASE_START, RaggedBatch
from clozeworks.objectives.mask import MaskTokens, Replace
from clozeworks.objectives.segments import SegmentPair
from clozeworks.screen.drawing import brief, marks, wrap_words


def test_marks_nest():
    """A phrase of three tokens whose first two are an entity, then an entity of one; a span over tokens two to four."""
    units = [PHRASE_START | ENTITY_START, PHRASE_INSIDE | ENTITY_INSIDE, PHRASE_INSIDE, ENTITY_START, 0]
    blank = np.zeros(5, dtype=bool)
    ragged = RaggedBatch(
        tokens=np.zeros(5, np.int32), first=np.array([0, 5]), segment=np.zeros(5, np.int8), special=blank,
        word_starts=blank, labels=np.zeros(5, np.int32), units=np.array(units, np.uint8),
        span=np.array([-1, 0, 0, 0, 1]),
    )  # fmt: skip
    assert marks(ragged, 0, 5) == (["‹«", "{", "", "«", "{"], ["", "»", "›", "}»", "}"])


def test_lines_break_between_words_only():
    words = [Text("西瓜|"), Text("喜欢|"), Text("ab "), Text("[SEP]")]
    lines = wrap_words(Text("A  "), words, 9)
    assert [line.plain for line in lines] == ["A  西瓜|", "   喜欢|", "   ab", "   [SEP]"]
    assert [line.plain for line in wrap_words(Text(), [Text("long ")], 2)] == ["long "]


def test_brief_tells_what_is_not_usual():
    assert brief(SegmentPair()) == "SegmentPair(length=128)"
    assert brief(MaskTokens()) == "MaskTokens"
    assert brief(MaskTokens(rounding="random", replace=Replace(source="ordinary"))) == (
        "MaskTokens(rounding='random', replace=Replace(source='ordinary'))"
    )
    assert brief(None) == "none"
