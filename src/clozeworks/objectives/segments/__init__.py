"""How documents become examples. A plan touches no token: it works on sentence offsets, all examples at once."""

from clozeworks.objectives.segments.doc_sentences import DocSentences
from clozeworks.objectives.segments.full_sentences import FullSentences
from clozeworks.objectives.segments.pair_stream import PairStream
from clozeworks.objectives.segments.pairs import Pairs
from clozeworks.objectives.segments.segment_pair import SegmentPair
from clozeworks.objectives.segments.sentence_order import SentenceOrder
from clozeworks.objectives.segments.sentence_pair import SentencePair
from clozeworks.objectives.segments.stream import Stream

__all__ = [
    "DocSentences",
    "FullSentences",
    "PairStream",
    "Pairs",
    "SegmentPair",
    "SentenceOrder",
    "SentencePair",
    "Stream",
]
