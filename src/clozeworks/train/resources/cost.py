"""What a recipe costs, measured by running it on the meta device: shapes flow, nothing is computed or allocated."""

import dataclasses
import re
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from clozeworks.core import spec
from clozeworks.core.batch import Batch, Spans, from_padded
from clozeworks.core.context import Context, Memory
from clozeworks.exchange.bundle import Bundle
from clozeworks.recipe import Recipe, assemble, count_parameters
from clozeworks.train.resources.footprint import measure_peak
from clozeworks.train.teacher import Teacher, outline

HIDDEN = 0.15  # share of the tokens that are predicted, where the corruption does not say
SPAN = 4  # tokens of a hidden span
# Measured on Linux as the peak of whole processes (VmHWM) for models of 2 to 110 million parameters.
PROCESS = 420_000_000  # bytes of Python, torch, its kernels' buffers and the text at hand
SCATTERED = 1.2  # what the allocator holds by what is alive: freed blocks of one size do not fit another


class _Dense(Batch):
    """A batch for every part by its definition, whose products torch can count; fast paths look at values."""

    __slots__ = ()

    def context(self, **more: Any) -> Context:
        return Batch.context(self, **{**more, "backend": "dense", "positions": None})


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryCost:
    """Parameters and memory of a recipe."""

    sizes: dict[str, int]  # parameters by name, each tensor once
    rows: int  # of the batch that is in memory at once
    length: int
    tokens: int  # of a training step
    kept: int  # numbers that the optimizer keeps for each weight
    spare: int  # and that it needs for a while
    passes: int  # bytes of activations, gradients and temporaries at the worst moment of both passes
    teacher: int = 0  # parameters of the model that this one learns from

    @property
    def parameters(self) -> int:
        return sum(self.sizes.values())

    @property
    def fixed(self) -> int:
        """Bytes of the weights, their gradients and what the optimizer keeps, in fp32."""
        return 4 * (2 + self.kept) * self.parameters

    @property
    def saving(self) -> int:
        """Bytes of the copy that is being written while training continues."""
        return 4 * (1 + self.kept) * self.parameters

    @property
    def step(self) -> int:
        """Bytes of the tensors of a step at its worst moment: in the backward pass, or in the update after it."""
        fixed = self.fixed + 4 * self.teacher
        return fixed + max(self.passes - 4 * self.parameters, 4 * self.spare * self.parameters)

    @property
    def on_device(self) -> int:
        """Bytes of an accelerator."""
        return round(SCATTERED * self.step)

    @property
    def memory(self) -> int:
        """Bytes of a process that trains on a processor."""
        return PROCESS + self.on_device + self.saving


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost(MemoryCost):
    """Parameters, arithmetic and memory of a recipe, whole and by part."""

    arithmetic: dict[str, float]  # forward FLOPs a token by name of the module
    without_heads: int

    @property
    def flops(self) -> float:
        return self.arithmetic[""]

    def of(self, part: str) -> tuple[int, float]:
        """Parameters and arithmetic of a part by its module's name."""
        inside = sum(count for name, count in self.sizes.items() if name.startswith(f"{part}."))
        return inside, self.arithmetic.get(part, 0.0)

    def of_blocks(self, part: str, side: str = "encoder") -> tuple[int, float]:
        """The same of one part of every block together; `norm` is every norm."""
        blocks = re.compile(rf"{side}\.stack\.(?:back\.)?blocks\.\d+\.(\w+)")
        here = lambda name: bool(match := blocks.match(name)) and match[1] in names  # noqa: E731
        names = ("mixer_norm", "cross_norm", "ffn_norm") if part == "norm" else (part,)
        inside = sum(count for name, count in self.sizes.items() if here(name))
        exact = [flops for name, flops in self.arithmetic.items() if blocks.fullmatch(name) and here(name)]
        return inside, sum(exact)


def measure_memory(recipe: Recipe, teacher: Bundle | None = None) -> MemoryCost:
    """Of full rows, each one document, in fp32; of what is compared with a teacher, only where one is given.

    Where the lengths of documents differ from batch to batch, fewer bytes are alive, but under dropout on weights of
    attention the tiles leave holes in the heap that no other tile fits: with rows of 512 the measured peak kept
    growing beyond this estimate, by 40 % and more.
    """
    spec.check(recipe, recipe.name)
    train = recipe.train
    with torch.device("meta"):
        model = assemble(recipe)
        taught = None if teacher is None else assemble(teacher.recipe)
    for stack in model.stacks:
        stack.recompute = train.recompute
    rows, length = _shape(recipe)
    if teacher is None or taught is None:
        teach = None
    else:
        wide = outline(teacher.recipe).width
        texts = (lambda read: torch.zeros(len(read.firsts), wide, device="meta")) if recipe.reads_texts else None
        teach = Teacher(taught, model.specs, recipe.top.depth, texts)
    # A second piece of the step finds the gradients of the first already there.
    pieces = min(2, -(-train.batch_tokens // (rows * length)))
    batches = [_batch(recipe, rows, length)] * pieces
    return MemoryCost(
        sizes={name: each.numel() for name, each in model.named_parameters() if each.is_floating_point()},
        rows=rows,
        length=length,
        tokens=train.batch_tokens,
        kept=train.optimizer.kept,
        spare=train.optimizer.spare,
        passes=measure_peak(model, batches, teach),
        teacher=0 if taught is None else sum(parameter.numel() for parameter in taught.parameters()),
    )


def measure_cost(recipe: Recipe, teacher: Bundle | None = None) -> Cost:
    """What `measure_memory` gives, and the arithmetic."""
    memory = measure_memory(recipe, teacher)
    fields = {field.name: getattr(memory, field.name) for field in dataclasses.fields(memory)}
    without_heads = count_parameters(recipe, heads=False)
    return Cost(**fields, arithmetic=count_arithmetic(recipe), without_heads=without_heads)


def count_arithmetic(recipe: Recipe) -> dict[str, float]:
    """Forward FLOPs a token by name of the module, every part by its definition."""
    with torch.device("meta"):
        model = assemble(recipe)
    rows, length = _shape(recipe)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(_dense(_batch(recipe, rows, length)))
    return {_name(name): sum(ops.values()) / (rows * length) for name, ops in counter.get_flop_counts().items()}


def _shape(recipe: Recipe) -> tuple[int, int]:
    """Rows of the batch that is in memory at once, and their length."""
    length, train = recipe.longest(), recipe.train
    return max(1, (train.micro_tokens or train.batch_tokens) // length), length


def multiply_adds(recipe: Recipe, length: int) -> int:
    """Of the blocks for one row of so many tokens, and where there is a decoder, for a target as long as its source.

    Of products alone, by each part's definition; tables of words, heads and what is done to single numbers are left
    out, as is usual where blocks are compared.
    """
    spec.check(recipe, recipe.name)
    with torch.device("meta"):
        model = assemble(recipe, heads=False)
    causal = recipe.objective.corruption is not None and recipe.objective.corruption.kind == "causal"
    batch = from_padded(torch.zeros(1, length, dtype=torch.long), kind="causal" if causal else "full").to("meta")
    if model.decoder is not None:
        batch.source = from_padded(torch.zeros(1, length, dtype=torch.long)).to("meta")
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(_dense(batch))
    counts = counter.get_flop_counts()
    stacks = ("Model.encoder.stack", "Model.decoder.stack")
    return sum(sum(counts[name].values()) for name in stacks if name in counts) // 2


def _name(module: str) -> str:
    """FlopCounterMode's name of a module, without the class of the model before it."""
    return "" if module == "Global" else module.partition(".")[2] or "model"


def _batch(recipe: Recipe, rows: int, length: int) -> Batch:
    """One of the right shapes; what the objective's fields hold does not matter here."""
    rate = getattr(recipe.objective.corruption, "rate", HIDDEN)
    source = None
    if recipe.decoder is not None:  # the length is that of both sides, and what is written is predicted
        written = getattr(recipe.objective.segments, "target_length", length // 2)
        source = from_padded(torch.zeros(rows, length - written, dtype=torch.long)).to("meta")
        length, rate = written, 1.0
    stateful = recipe.encoder.stack.stateful
    one_way = stateful and recipe.objective.corruption is not None and recipe.objective.corruption.kind == "causal"
    tokens = torch.zeros(rows, length, dtype=torch.long)
    batch = from_padded(tokens, kind="causal" if one_way else "full").to("meta")
    batch.source = source
    batch.targets = batch.labels = torch.zeros(round(rate * rows * length), dtype=torch.long, device="meta")
    if recipe.objective.corruption is not None and recipe.objective.corruption.kind == "order":
        batch.kind = "order"  # a second stream asks at the targets
    if recipe.objective.corruption and "spans" in recipe.objective.corruption.writes:
        borders = batch.labels[: len(batch.labels) // SPAN * 2]
        batch.spans = Spans(batch.labels, batch.labels, batch.labels, batch.labels, borders, (len(batch.labels),))
    if (memory := recipe.encoder.stack.memory) and not stateful:  # as full as it gets
        past = from_padded(torch.zeros(rows, memory, dtype=torch.long)).to("meta").token_info.earlier(memory)
        held = torch.zeros(rows, memory, recipe.encoder.width, device="meta")
        batch.past = Memory((held,) * recipe.encoder.stack.depth, past)
    for name in recipe.objective.segments.writes:
        batch.example[name] = torch.zeros(rows, dtype=torch.long, device="meta")
    return batch


def _dense(batch: Batch) -> Batch:
    dense = _Dense(**{field.name: getattr(batch, field.name) for field in dataclasses.fields(batch)})
    dense.source = None if batch.source is None else _dense(batch.source)
    return dense
