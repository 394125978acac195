"""Write the target of a pair, having read its source."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from clozeworks.core.examples import NOTHING, RaggedBatch, Vocabulary
from clozeworks.objectives.shift import Shift


@dataclass(slots=True)
class Translate(Shift):
    """Sequence to sequence: p(y | x) = prod_t p(y_t | y_<t, x) (Sutskever et al. 2014; Vaswani et al. 2017, 3).

    Of an example of `Pairs` the source is read whole, [SEP] among it, by an encoder; the target [CLS] y_1 ... y_n by a
    decoder, which predicts y_1 ... y_n [SEP]: n + 1 predictions. Nothing is predicted of the source. The two become the
    two sides of a batch, and a row of it holds the same pairs on both.
    """

    sides: ClassVar[int] = 2

    def corrupt(self, examples: RaggedBatch, keys: np.ndarray, vocabulary: Vocabulary) -> RaggedBatch:
        shifted = Shift.corrupt(self, examples, keys, vocabulary)
        return replace(shifted, labels=np.where(shifted.segment == 0, NOTHING, shifted.labels).astype(np.int32))
