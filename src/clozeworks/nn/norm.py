"""Layer normalisation."""

from dataclasses import dataclass

from torch import nn

from clozeworks.core.bounds import NonNegative
from clozeworks.core.spec import Spec


@dataclass(slots=True)
class LayerNorm(Spec):
    """y = (x - mean) / sqrt(var + eps) * g + b over the last dimension (Ba et al. 2016).

    [..., D] -> [..., D].
    """

    eps: NonNegative = 1e-12

    def build(self, width: int) -> nn.LayerNorm:
        return nn.LayerNorm(width, eps=self.eps)
