"""Corruptions that mask tokens by replacing them: of masked language modelling, with dynamic masking."""

from clozeworks.objectives.mask.ngrams import MaskNgrams
from clozeworks.objectives.mask.phrases import MaskPhrases
from clozeworks.objectives.mask.replace import Replace
from clozeworks.objectives.mask.spans import MaskSpans
from clozeworks.objectives.mask.tokens import MaskTokens
from clozeworks.objectives.mask.whole_words import MaskWholeWords

__all__ = ["MaskNgrams", "MaskPhrases", "MaskSpans", "MaskTokens", "MaskWholeWords", "Replace"]
