"""Scores of words that begin as their frequencies.

What is learned first is how often each word occurs, whatever stands around it. A bias that begins as 0 learns that by
some thousandths a step, so at first a model says it in its own way: vectors that point one way wherever a word stands,
and units at their limits, from which a recurrent model hardly comes back.
"""

from collections.abc import Sequence

import numpy as np
import torch

from clozeworks.metrics.frequencies import smoothed_frequencies
from clozeworks.model import Model
from clozeworks.objectives.objective import Loss


def begin_prior(model: Model, losses: Sequence[Loss], counts: np.ndarray | None) -> None:
    """b = log p of each word, for a text that has it `counts` times, in the heads that ask for it."""
    if counts is None:
        return
    for loss in losses:
        if getattr(loss, "prior", False):
            head = model.head(loss.name)
            assert head is not None
            with torch.no_grad():
                head.get_parameter("bias").copy_(torch.from_numpy(np.log(smoothed_frequencies(counts))))
