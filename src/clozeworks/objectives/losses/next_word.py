"""Predict the word that follows, whichever way a text is read."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from clozeworks.core.batch import Batch, Hidden
from clozeworks.core.bounds import Count
from clozeworks.nn.embed import EmbedLayer
from clozeworks.nn.kernels.linear import Linear
from clozeworks.objectives.losses.candidates import Candidates, sampled
from clozeworks.objectives.losses.cross_entropy import cross_entropy
from clozeworks.objectives.objective import Loss, LossLayer, Needs


@dataclass(slots=True)
class NextWord(Loss):
    """Both ways by one softmax: -sum_k [log p(w_k | w_<k) + log p(w_k | w_>k)] (Peters et al. 2018, 3.1).

    logits = W h + b with W [V, D] of its own, for rows read from the beginning and for rows read from the end alike.
    With `samples` n, training compares each word with n candidates instead of all (`candidates`), which are the same
    for a whole step; without gradients, as on held-out text, it is always the softmax over all words. The loss is the
    mean over the predictions of both ways, as each has half of the rows.

    [T, D] -> a number. O(T D V), or O(T D n) with samples.
    """

    name: ClassVar[str] = "next_token"
    needs: ClassVar[Needs] = Needs(reads=frozenset({"labels"}), one_way=True)
    samples: Count | None = None

    @property
    def scores_with_bias(self) -> bool:
        return True

    def build(self, width: int, embed: EmbedLayer) -> "NextWordLayer":
        return NextWordLayer(self, width // 2, embed.words.vocab)


class NextWordLayer(LossLayer):
    """Weights of `NextWord`: W [V, D] and b."""

    def __init__(self, spec: NextWord, width: int, vocab: int):
        super().__init__()
        self.head = Linear(width, vocab, bias=False)
        self.bias = nn.Parameter(torch.zeros(vocab))
        self.samples = None if spec.samples is None or spec.samples >= vocab else spec.samples

    def forward(self, hidden: Hidden, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        assert batch.labels is not None
        x = hidden.at(batch)
        if self.samples is None or not torch.is_grad_enabled() or hidden.key is None:
            loss, right = cross_entropy(x, self.head.weight, self.bias, batch.labels)
            return loss, {"next_accuracy": right}
        candidates = Candidates.draw(hidden.key.common("candidates"), self.samples, len(self.bias))
        return sampled(x, self.head.weight, self.bias, batch.labels, candidates), {}
