"""What a context promises about visibility, held against its dense mask."""

import torch

from clozeworks.core.context import Context
from clozeworks.core.token_info import visible


def verify_promises(context: Context) -> None:
    """Hold a context to its promises: kind and offset must agree with the dense mask."""
    query, memory = context.query, context.memory
    same = query.document[:, :, None] == memory.document[:, None, :]
    seen = visible(query, memory)
    if context.kind == "full":
        assert torch.equal(seen, same), "kind is full, yet something of the same document is hidden"
    if context.kind == "causal":
        past = memory.position[:, None, :] <= query.position[:, :, None]
        assert torch.equal(seen, same & past), "kind is causal, yet the mask is not"
    if context.offset is not None:
        rows = torch.arange(query.position.shape[1]) + context.offset
        moved = memory.each(lambda value: value[:, rows])
        assert torch.equal(moved.document, query.document), "offset: query i is not memory i + offset"
        index = rows[:, None] - torch.arange(memory.position.shape[1])
        distance = query.position[:, :, None] - memory.position[:, None, :]
        if context.backward is not None:
            distance = torch.where(context.backward[:, None, None], -distance, distance)
        assert torch.equal(distance[same], index.expand_as(distance)[same]), "offset: distances are irregular"
    if context.layout is not None:
        flat = query.document.flatten().tolist()
        for start, length in zip(context.layout.starts, context.layout.lengths, strict=True):
            assert len(set(flat[start : start + length])) == 1, "layout: a document is cut"
