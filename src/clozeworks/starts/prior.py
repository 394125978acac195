"""Scores of words that begin as their frequencies.

What is learned first is how often each word occurs, whatever stands around it. A bias that begins as 0 learns that by
some thousandths a step, so at first a model says it in its own way: vectors that point one way wherever a word stands,
and units at their limits, from which a recurrent model hardly comes back.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from clozeworks.core.errors import RecipeError
from clozeworks.data.shards.corpus import Corpus
from clozeworks.metrics.frequencies import smoothed_frequencies
from clozeworks.nn.architecture import Architecture
from clozeworks.objectives.objective import Objective
from clozeworks.starts.initializer import Fresh, Initializer


@dataclass(slots=True)
class FrequencyPrior(Initializer):
    """The bias of every head that scores words begins as b_w = log p(w), the share of w in the text, not as 0.

    Before its first step a model is then as good as word frequencies. [V], O(V).
    """

    option: ClassVar[str] = "prior"
    reads_text: ClassVar[bool] = True

    def check_model(self, where: str, model: Architecture, objective: Objective) -> None:
        if not any(loss.scores_with_bias for loss in objective.losses):
            names = ", ".join(type(loss).__name__ for loss in objective.losses) or "nothing"
            needed = f"a bias of words is what begins so, and there is only {names}"
            raise RecipeError(where, "FrequencyPrior", needed, "use a loss with a bias, or leave it out")

    def begin(self, fresh: Fresh) -> list[str]:
        if not fresh.corpora:
            return []
        scores = torch.from_numpy(np.log(smoothed_frequencies(unigram(fresh.corpora))))
        for loss in fresh.objective.losses:
            head = fresh.model.head(loss.name)
            if loss.scores_with_bias and head is not None:
                with torch.no_grad():
                    head.get_parameter("bias").copy_(scores)
        return []


def unigram(corpora: Sequence[tuple[Corpus, float]]) -> np.ndarray:
    """How often the text of a step has each token, corpora as they are mixed: [vocabulary], in tokens of all."""
    counts = np.stack([corpus.unigram() for corpus, _ in corpora])
    weights = np.array([weight for _, weight in corpora])
    shares = counts / counts.sum(1, keepdims=True).clip(1)
    return weights / weights.sum() @ shares * counts.sum()
