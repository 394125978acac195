"""How much each layer changes what it is given: distance and cosine between its input and its output.

Layers that share their weights change it more evenly from one to the next (Lan et al. 2019, figure 1).
"""

import itertools
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from clozeworks.core.batch import Batch
from clozeworks.core.token_info import PADDING
from clozeworks.model import EncoderLayer
from clozeworks.objectives.objective import Objective


@dataclass(frozen=True, slots=True)
class Changes:
    """Of each layer, from the first on, the mean over tokens. Layer 1 takes what the embedding gives."""

    tokens: int
    distance: list[float]  # |output - input|, the L2 norm
    cosine: list[float]  # between the two

    @property
    def deviation(self) -> tuple[float, float]:
        """How uneven the layers are: the standard deviation over them of distance and cosine."""
        return statistics.pstdev(self.distance), statistics.pstdev(self.cosine)


@torch.no_grad()
def measure(encoder: EncoderLayer, batches: Iterable[Batch]) -> Changes:
    """Over every token of the batches, padding left out."""
    device = next(encoder.parameters()).device
    count, sums = 0, torch.zeros(len(encoder.stack.blocks), 2, dtype=torch.float64)
    for batch in batches:
        batch = batch.to(device)
        real = batch.token_info.document != PADDING
        layers = [layer[real] for layer in encoder(batch.tokens, batch.token_info, batch.context(), layers=True).layers]
        count += int(real.sum())
        for number, (before, after) in enumerate(itertools.pairwise(layers)):
            sums[number] += torch.stack(_compared(before, after)).cpu()
    means = (sums / max(count, 1)).T.tolist()
    return Changes(count, *means)


def _compared(before: Tensor, after: Tensor) -> tuple[Tensor, Tensor]:
    """[T, D] twice: sums over the tokens of distance and cosine."""
    distance = (after - before).norm(dim=-1)
    cosine = torch.nn.functional.cosine_similarity(before, after, dim=-1)
    return distance.double().sum(), cosine.double().sum()


def open_text(objective: Objective) -> Objective:
    """The objective with nothing replaced in its examples; who may see whom stays as it is."""
    corruption = objective.corruption
    hidden = corruption if corruption is not None and corruption.hides != "replacing" else None
    return Objective(objective.segments, hidden, ())
