"""What a recipe costs, found by running it on the meta device: shapes flow, nothing is computed or allocated."""

import dataclasses
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from clozeworks import spec
from clozeworks.batch import Batch, Context, from_padded
from clozeworks.key import Key
from clozeworks.model import Model
from clozeworks.nn.mixer import Mixer
from clozeworks.pretraining import Recipe, count_parameters

HIDDEN = 0.15  # share of the tokens that are predicted, where the corruption does not say


class _Dense(Batch):
    """A batch for attention by its definition: dropped weights are kept, and fast paths look at values."""

    __slots__ = ()

    def context(self, **more: Any) -> Context:
        return Batch.context(self, backend="dense", **more)


@dataclass(frozen=True, slots=True)
class Cost:
    sizes: dict[str, int]  # parameters by name, each tensor once
    arithmetic: dict[str, float]  # forward FLOPs a token by name of the module
    without_heads: int
    rows: int  # of the batch that is in memory at once
    length: int
    tokens: int  # of a training step
    activations: int  # bytes kept for the backward pass

    @property
    def parameters(self) -> int:
        return sum(self.sizes.values())

    @property
    def flops(self) -> float:
        return self.arithmetic[""]

    @property
    def fixed(self) -> int:
        """Bytes of the weights, their gradients and AdamW's two moments, in fp32."""
        return 16 * self.parameters

    @property
    def memory(self) -> int:
        return self.fixed + self.activations

    def of(self, part: str) -> tuple[int, float]:
        """Parameters and arithmetic of a part by its module's name."""
        inside = sum(count for name, count in self.sizes.items() if name.startswith(f"{part}."))
        return inside, self.arithmetic.get(part, 0.0)

    def of_blocks(self, part: str) -> tuple[int, float]:
        """The same of one part of every block together; `norm` is every norm."""
        here = lambda name: name.startswith("encoder.stack.blocks.") and name.split(".")[4] in names  # noqa: E731
        names = ("mixer_norm", "cross_norm", "ffn_norm") if part == "norm" else (part,)
        inside = sum(count for name, count in self.sizes.items() if here(name))
        exact = [flops for name, flops in self.arithmetic.items() if name.count(".") == 4 and here(name)]
        return inside, sum(exact)


def cost_of(recipe: Recipe) -> Cost:
    spec.check(recipe, recipe.name)
    length = recipe.longest()
    rows = max(1, (recipe.train.micro_tokens or recipe.train.batch_tokens) // length)
    with torch.device("meta"):
        model = Model(recipe.encoder, recipe.objective.losses)
    batch = _batch(recipe, rows, length)
    kept: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        kept[storage._cdata] = storage
        return tensor

    parameters = {parameter.untyped_storage()._cdata for parameter in model.parameters()}
    with (
        FlopCounterMode(display=False) as counter,
        torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
    ):
        model(batch, Key.make(0, 0, 0))
    found = {_name(name): sum(ops.values()) / (rows * length) for name, ops in counter.get_flop_counts().items()}
    return Cost(
        sizes={name: parameter.numel() for name, parameter in model.named_parameters()},
        arithmetic=found,
        without_heads=count_parameters(recipe, heads=False),
        rows=rows,
        length=length,
        tokens=recipe.train.batch_tokens,
        activations=sum(storage.nbytes() for key, storage in kept.items() if key not in parameters),
    )


def _name(module: str) -> str:
    """FlopCounterMode's name of a module, without the class of the model before it."""
    return "" if module == "Global" else module.partition(".")[2] or "model"


def _batch(recipe: Recipe, rows: int, length: int) -> Batch:
    """One of the right shapes; what the objective's fields hold does not matter here."""
    batch = from_padded(torch.zeros(rows, length, dtype=torch.long)).to("meta")
    if any(getattr(part, "dropout", 0) for _, part in spec.walk(recipe.encoder.stack) if isinstance(part, Mixer)):
        batch = _Dense(**{field.name: getattr(batch, field.name) for field in dataclasses.fields(batch)})
    rate = getattr(recipe.objective.corruption, "rate", HIDDEN)
    batch.targets = batch.labels = torch.zeros(round(rate * rows * length), dtype=torch.long, device="meta")
    for name in recipe.objective.segments.writes:
        batch.example[name] = torch.zeros(rows, dtype=torch.long, device="meta")
    return batch
