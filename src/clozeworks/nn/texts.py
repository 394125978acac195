"""Where the texts of a batch lie, for parts that treat each as one."""

import torch
from torch import Tensor
from torch.nn import functional as F

from clozeworks.batch import Borders, Context


def borders_of(context: Context) -> Borders:
    """As the context tells them, or found once a pass."""
    return context.borders if context.borders is not None else context.once("borders", lambda: found(context))


def found(context: Context) -> Borders:
    """The borders of a context that does not know them."""
    document = context.query.document
    rows, width = document.shape
    changes = (document != F.pad(document, (1, 0), value=document.min().item() - 1)[:, :-1]).flatten()
    starts = changes.nonzero()[:, 0].tolist()
    ends = [*starts[1:], rows * width]
    return Borders(tuple(starts), tuple(end - start for start, end in zip(starts, ends, strict=True)), rows, width)


def owners(borders: Borders, device: torch.device) -> tuple[Tensor, Tensor]:
    """[N] the flat offsets at which texts begin, rising, and [B * L] the number among these of each token's text."""
    starts, lengths = torch.tensor(borders.starts), torch.tensor(borders.lengths)
    order = starts.argsort()
    owner = torch.arange(len(starts)).repeat_interleave(lengths[order])
    return starts[order].to(device), owner.to(device)
