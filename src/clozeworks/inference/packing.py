"""Texts of like length side by side in one row: nothing is padded, and a row is as long as the cache likes it."""

from collections.abc import Iterator, Sequence

import torch

from clozeworks.core.batch import Batch
from clozeworks.core.token_info import DocumentLayout, Kind, TokenInfo
from clozeworks.nn.stack import Stack

ROW = 1024  # tokens of a row at most, unless one text has more: what a block works on then fits into the caches


def can_pack(stack: Stack) -> bool:
    """Whether texts side by side cost what they cost alone: each pair has a score, and nothing else hangs on a row."""
    plain = stack.directions == 1 and not stack.memory
    return plain and all(
        mixer.scores and getattr(mixer, "bias", None) is None and getattr(mixer, "window", None) is None
        for mixer in stack.mixers()
    )


def pack_by_length(rows: Sequence[Sequence[int]], batch_tokens: int, kind: Kind) -> Iterator[tuple[list[int], Batch]]:
    """Which texts, and a batch of one row with them: the longest first, those of one length together."""
    order = sorted(range(len(rows)), key=lambda n: -len(rows[n]))
    begin = 0
    while begin < len(order):
        end, total = begin + 1, len(rows[order[begin]])
        while end < len(order) and total + len(rows[order[end]]) <= batch_tokens:
            total += len(rows[order[end]])
            end += 1
        chosen, begin = order[begin:end], end
        yield chosen, pack([rows[n] for n in chosen], kind)


def pack(rows: Sequence[Sequence[int]], kind: Kind) -> Batch:
    """A batch of one row with these texts side by side."""
    lengths = torch.tensor([len(row) for row in rows])
    lasts = lengths.cumsum(0) - 1
    firsts = lasts - lengths + 1
    tokens = torch.tensor([[token for row in rows for token in row]])
    document = torch.arange(len(rows)).repeat_interleave(lengths)
    position = torch.arange(tokens.shape[1]) - firsts[document]
    layout = DocumentLayout(tuple(firsts.tolist()), tuple(lengths.tolist()), 1, tokens.shape[1])
    side = TokenInfo.make(position[None], document[None], kind)
    return Batch(tokens, side, kind, layout, firsts, lasts, tokens.shape[1])
