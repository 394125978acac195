"""How one vector is made of a text."""

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor

from clozeworks.core.bounds import LARGEST, Bound
from clozeworks.core.spec import Spec

PoolingMode = Literal["mean", "first", "max", "pooled"]


@dataclass(slots=True)
class Pooling(Spec):
    """The mean of a text's vectors, specials too; that of its first token; the largest value in each place; or what the
    encoder's pooler gives. With `normalise` its length is 1, so that products are cosines.

    Texts are cut after `length` tokens, specials counted; None: where the encoder's positions end. `prompt` is written
    before every text.

    [B, L, D] -> [N, D], one vector a text (Reimers & Gurevych 2019). O(L D).
    """

    mode: PoolingMode = "mean"
    normalise: bool = False
    length: Annotated[int, Bound(3, LARGEST)] | None = None
    prompt: str = ""


def unpack(last: Tensor, firsts: Tensor, lasts: Tensor) -> tuple[Tensor, Tensor]:
    """last [B, L, D], whose rows hold texts side by side -> a text a row [N, M, D], with its mask [N, M].

    `firsts` and `lasts` [N] are flat offsets of the tokens that they begin and end with.
    """
    place = torch.arange(int((lasts - firsts).max()) + 1, device=last.device)
    at = firsts[:, None] + place
    mask = at <= lasts[:, None]
    return last.flatten(0, 1)[torch.where(mask, at, firsts[:, None])], mask


def pool_tokens(last: Tensor, mask: Tensor, pooler: Tensor | None, pool: PoolingMode) -> Tensor:
    """last [B, L, D], mask [B, L] -> [B, D]; `pooler` [B, D] is given where the encoder has one."""
    real = mask[..., None].to(last.dtype)
    if pool == "mean":
        return (last * real).sum(1) / real.sum(1)
    if pool == "max":
        return last.masked_fill(real == 0, -torch.inf).amax(1)
    if pool == "first":
        return last[:, 0]
    assert pooler is not None
    return pooler
