"""The model whose weights a run begins from."""

import hashlib
import re

import torch

from clozeworks.core.errors import InputError
from clozeworks.model import Model


def transfer(source: Model, model: Model, decoder: Model | None = None) -> list[str]:
    """Copy weights by name. The encoder must be there in full; a head the source lacks starts fresh and is named.

    A decoder that the source lacks starts from its encoder, or from that of `decoder`, and so does what is predicted
    from it; its cross-attention, which no encoder has, is new.
    """
    theirs, fresh, notes = dict(source.named_parameters()), [], []
    begins = model.decoder is not None and (source.decoder is None or decoder is not None)
    if begins:
        theirs = {name: value for name, value in theirs.items() if name.startswith("encoder.")}
        encoder = dict((decoder or source).named_parameters())
        theirs |= {"decoder." + name.removeprefix("encoder."): value for name, value in encoder.items()
                   if name.startswith("encoder.")}  # fmt: skip
        which = "another encoder" if decoder else "the encoder"
        notes = [f"the decoder starts as {which}, its cross-attention from fresh weights"]
    theirs = _words(source if decoder is None else decoder) | theirs
    for name, parameter in model.named_parameters():
        if begins and _CROSS.match(name):
            continue
        there = theirs.get(name)
        if there is not None and there.shape == parameter.shape:
            parameter.data.copy_(there)
        elif name.startswith(("encoder.", "decoder.")) and not name.startswith("encoder.pooler."):
            given = "nothing" if there is None else f"a shape of {tuple(there.shape)}"
            raise InputError(f"--from, {name}", given, f"the recipe has {tuple(parameter.shape)}",
                             "take the recipe of that model")  # fmt: skip
        else:
            fresh.append(".".join(name.split(".")[:2]))
    fresh = [f"fresh weights for what the source lacks: {', '.join(dict.fromkeys(fresh))}"] if fresh else []
    return [*notes, *fresh, *_list_dropped(source, model)]


def _list_dropped(source: Model, model: Model) -> list[str]:
    """A sentence about parts of the source's encoder that the model has no place for; a pooler is a part of heads."""
    own = {name for name, _ in model.encoder.named_parameters()}
    lost = [name for name, _ in source.encoder.named_parameters() if name not in own and not name.startswith("pooler.")]
    blocks = dict.fromkeys(".".join(name.split(".")[:3]) for name in lost)
    return [f"left behind, since the recipe has no place for it: {', '.join(blocks)}"] if lost else []


def _words(source: Model) -> dict[str, torch.nn.Parameter]:
    """The head that predicts words, under the name that it has in a task."""
    heads = (source.head(name) for name in ("masked_lm", "next_token", "permuted_lm"))
    head = next((head for head in heads if head is not None), None)
    return {} if head is None else {f"heads.seq2seq.words.{name}": value for name, value in head.named_parameters()}


def take_layers(teacher: Model, model: Model, layers: tuple[int, ...]) -> list[str]:
    """Copy the teacher's tables, norms, masked-LM head, and the block of it that is named for each of the model's.

    Of the tables the rows that the model has. What either lacks, such as segments or a head, is left out; what does not
    fit by its shape is refused.
    """
    theirs, own = dict(teacher.named_parameters(remove_duplicate=False)), dict(model.named_parameters())
    offsets = [getattr(each.encoder.embed.positions, "offset", 0) for each in (teacher, model)]
    fresh = []
    for name, parameter in own.items():
        there = theirs.get(_BLOCK.sub(lambda match: f"{match[1]}{layers[int(match[2])]}.", name))
        if there is not None and name.endswith(_ROWS):
            skipped = offsets[0] - offsets[1] if ".positions." in name else 0
            there = torch.cat([parameter.detach()[:-skipped], there]) if skipped < 0 else there[skipped:]
            there = there[: len(parameter)]
        if there is None:
            fresh.append(".".join(name.split(".")[:3]))
        elif there.shape == parameter.shape:
            parameter.data.copy_(there)
        elif name.startswith(("encoder.", "heads.masked_lm.")) and ".segments." not in name:
            given, needed = f"the teacher has {tuple(there.shape)}", f"the student has {tuple(parameter.shape)}"
            raise InputError(
                f"distil.start, {name}", given, needed, "use the teacher's shape, or set distil.start=None"
            )
        else:
            fresh.append(".".join(name.split(".")[:3]))
    note = f"starting from layers {', '.join(map(str, layers))} of the teacher"
    return [f"{note}; fresh: {', '.join(dict.fromkeys(fresh))}" if fresh else note]


_CROSS = re.compile(r"^decoder\.stack\.blocks\.\d+\.cross(_norm)?\.")
_BLOCK = re.compile(r"^(encoder\.stack\.blocks\.)(\d+)\.")
_ROWS = ("embed.words.table.weight", "embed.positions.table.weight", "heads.masked_lm.bias")


def digest(model: Model) -> str:
    """SHA-256 of the weights."""
    total = hashlib.sha256()
    for name, parameter in model.named_parameters():
        total.update(name.encode())
        total.update(parameter.detach().cpu().contiguous().numpy().tobytes())
    return total.hexdigest()
