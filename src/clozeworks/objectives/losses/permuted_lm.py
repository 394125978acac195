"""Predict tokens in a drawn order."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from clozeworks.core.batch import Batch
from clozeworks.objectives.losses.next_token import NextToken
from clozeworks.objectives.objective import Needs


@dataclass(slots=True)
class PermutedLM(NextToken):
    """Cross-entropy of the targets, each from the tokens before it in a drawn order (Yang et al. 2019, equation 5).

    sum_t log p(x_t | x_s, s before t in the order), with the head of `NextToken` and a bias. It reads the stream that
    does not know its own tokens, hence nothing of the other one, which the last block then need not give.

    [T, D] of the second stream -> a number. O(T D V), memory of one piece of the logits.
    """

    name: ClassVar[str] = "permuted_lm"
    needs: ClassVar[Needs] = Needs(reads=frozenset({"labels", "order"}), words="table")
    metric: ClassVar[str] = "permuted_accuracy"
    bias: bool = True

    def read_positions(self, batch: Batch) -> Tensor | None:
        return None if batch.targets is None else batch.targets[:0]
