"""The model whose weights a run begins from."""

import hashlib

from clozeworks.errors import InputError
from clozeworks.model import Model


def transfer(source: Model, model: Model) -> list[str]:
    """Copy weights by name. The encoder must be there in full; a head the source lacks starts fresh and is named."""
    theirs, fresh = dict(source.named_parameters()), []
    for name, parameter in model.named_parameters():
        there = theirs.get(name)
        if there is not None and there.shape == parameter.shape:
            parameter.data.copy_(there)
        elif name.startswith("encoder.") and not name.startswith("encoder.pooler."):
            given = "nothing" if there is None else f"a shape of {tuple(there.shape)}"
            raise InputError(f"--from, {name}", given, f"the recipe has {tuple(parameter.shape)}",
                             "take the recipe of that model")  # fmt: skip
        else:
            fresh.append(".".join(name.split(".")[:2]))
    return [f"fresh weights for what the source lacks: {', '.join(dict.fromkeys(fresh))}"] if fresh else []


def digest(model: Model) -> str:
    """SHA-256 of the weights."""
    total = hashlib.sha256()
    for name, parameter in model.named_parameters():
        total.update(name.encode())
        total.update(parameter.detach().cpu().contiguous().numpy().tobytes())
    return total.hexdigest()
