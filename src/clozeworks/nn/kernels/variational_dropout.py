"""Dropout by one mask a text: a unit is missing at all of its tokens, or at none."""

from torch import Tensor

from clozeworks.core.context import Context
from clozeworks.core.dropout import dropout
from clozeworks.nn.kernels.documents import borders_of, owners


def drop_variationally(x: Tensor, rate: float, context: Context) -> Tensor:
    """x [B, L, D], or [W, D] at `context.places`, with the same units dropped at every token of a text.

    "Variational" dropout of recurrent models (Gal & Ghahramani 2016; Merity et al. 2018, 4.2). What is dropped of a
    text depends on its row and on where it begins there, not on the texts beside it; what continues in the rows of the
    next step has another mask there. No key, no randomness.
    """
    if context.key is None or rate == 0:
        return x
    borders = borders_of(context)
    starts, owner = context.once("owners", lambda: owners(borders, x.device))
    kept = dropout(x.new_ones(len(starts), x.shape[-1]), rate, context.key.within(starts, borders.rows * borders.width))
    if x.ndim == 3 and borders.plain:
        return x * kept[:, None]
    if context.positions is not None and x.ndim == 2:
        owner = owner.index_select(0, context.positions)
    return x * kept.index_select(0, owner).view(x.shape)
