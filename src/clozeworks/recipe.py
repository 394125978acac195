"""A recipe: everything that defines a pretrained model, as one tree of specs."""

from dataclasses import dataclass
from typing import Literal

import torch

from clozeworks.core import spec
from clozeworks.core.errors import RecipeError
from clozeworks.core.spec import Spec
from clozeworks.model import Encoder, Model, initialise
from clozeworks.nn.bias.adaptive_span import AdaptiveSpan
from clozeworks.nn.decoder import Decoder, crosses
from clozeworks.nn.pooling import Pooling
from clozeworks.nn.positions import AxialPositions, LearnedPositions
from clozeworks.nn.stack import Stack
from clozeworks.nn.words import Adaptive
from clozeworks.objectives.objective import Objective
from clozeworks.optim.settings import Distil, Finetune, Train
from clozeworks.tasks.task import Task


@dataclass(slots=True)
class Recipe(Spec):
    name: str
    encoder: Encoder
    objective: Objective
    train: Train
    distil: Distil | None = None
    decoder: Decoder | None = None
    finetune: Finetune | None = None
    pooling: Pooling | None = None

    def check(self, where: str) -> None:
        corruption, stack = self.objective.corruption, self.top
        self._check_sides(where)
        for mixer in stack.mixers():
            if corruption is not None and corruption.kind not in stack.sees(mixer):
                bias = getattr(mixer, "bias", None)
                narrow = bias is not None and corruption.kind not in bias.honours
                name = f"{type(bias).__name__} in {type(mixer).__name__}" if narrow else type(mixer).__name__
                raise RecipeError(
                    f"{where}.objective.corruption",
                    type(corruption).__name__,
                    f"{name} cannot hide what {corruption.kind} visibility hides",
                    "change the mixer or the corruption",
                )
        two = corruption is not None and corruption.hides == "two streams"
        if two and stack.streams != 2:
            raise RecipeError(
                f"{where}.objective.corruption",
                type(corruption).__name__,
                "its rows hold the answers, which a stack with one stream can simply read",
                "use a stack with two streams, or another corruption",
            )
        if stack.streams == 2 and not two:
            raise RecipeError(
                f"{where}.encoder.stack",
                type(stack).__name__,
                "its second stream predicts tokens in an order, and nothing gives them one",
                "use corruption=Permute() or a stack with one stream",
            )
        if self.encoder.pooler is None and any(loss.pools for loss in self.objective.losses):
            raise RecipeError(f"{where}.encoder.pooler", None, "a loss reads the pooled vector", "use Pooler()")
        embed = self.encoder.embed if self.decoder is None else self.decoder.embed or self.encoder.embed
        clusters, own = embed.words, "encoder" if embed is self.encoder.embed else "decoder"
        for index, loss in enumerate(self.objective.losses):
            if loss.scores == "table" and clusters is not None:
                by = "has clusters" if isinstance(clusters, Adaptive) else "reads characters"
                needed = f"it scores words against one table, and {own}.embed.words {by}"
                other = "AdaptiveNextToken" if isinstance(clusters, Adaptive) else "NextWord"
                todo = f"use {other}, or {own}.embed.words=None"
            elif loss.scores == "clusters" and not isinstance(clusters, Adaptive):
                needed = "it scores words by clusters, and there is one table"
                todo = f"use NextToken, or {own}.embed.words=Adaptive(cutoffs=[...])"
            else:
                continue
            raise RecipeError(f"{where}.objective.losses.{index}", type(loss).__name__, needed, todo)
        spans = any(isinstance(part, AdaptiveSpan) for _, part in spec.walk(stack))
        for index, loss in enumerate(self.objective.losses):
            if "penalties" in loss.needs and not spans:
                needed, todo = "no span is learned", "remove it, or use Attention(bias=AdaptiveSpan(...))"
                raise RecipeError(f"{where}.objective.losses.{index}", type(loss).__name__, needed, todo)
        positions = self.encoder.embed.positions
        for name, each in (("encoder", positions), ("decoder", embed.positions)):
            if isinstance(each, (LearnedPositions, AxialPositions)) and self.longest() > each.length:
                grid = isinstance(each, AxialPositions)
                raise RecipeError(
                    f"{where}.{name}.embed.positions.{'shape' if grid else 'length'}",
                    list(each.shape) if grid else each.length,
                    f"examples are up to {self.longest()} tokens long",
                    f"use at least {self.longest()}",
                )
        if self.distil is not None and self.distil.freeze_positions and not isinstance(positions, LearnedPositions):
            raise RecipeError(f"{where}.distil.freeze_positions", True, "there is no table of positions", "use false")
        self._check_memory(where)
        self._check_ways(where)
        self._check_task(where)
        start = self.distil.start if self.distil is not None else None
        if start is not None and self.decoder is not None:
            needed = "layers of a teacher are taken for an encoder alone"
            raise RecipeError(f"{where}.distil.start", start, needed, "use None")
        if isinstance(start, tuple) and len(start) != stack.depth:
            needed = f"one layer of the teacher for each of {stack.depth} is needed"
            raise RecipeError(f"{where}.distil.start", list(start), needed, 'use "spread"')
        if self.train.batch_tokens < self.longest():
            raise RecipeError(
                f"{where}.train.batch_tokens",
                self.train.batch_tokens,
                f"one row is {self.longest()} tokens long",
                f"use at least {self.longest()}",
            )

    def _check_sides(self, where: str) -> None:
        """What is read and what is written must have the parts for it."""
        encoder, decoder, corruption = self.encoder, self.decoder, self.objective.corruption
        if any(crosses(encoder.stack)):
            needed = "an encoder has nothing but its own rows to attend to"
            raise RecipeError(f"{where}.encoder.stack.block.cross", "a mixer", needed, "use None, and a decoder for it")
        two = corruption is not None and corruption.sides == 2
        if two and decoder is None:
            given, needed = type(corruption).__name__, "it writes a target from a source, which takes a decoder"
            raise RecipeError(f"{where}.objective.corruption", given, needed, "give the recipe one, or use Shift")
        if decoder is None:
            return
        decoder.fit(f"{where}.decoder", encoder.stack.out_width(encoder.width))
        if encoder.stack.streams != 1 or encoder.stack.memory:
            given, needed = type(encoder.stack).__name__, "a source is read whole, by one stream without memory"
            raise RecipeError(f"{where}.encoder.stack", given, needed, "use Stack(...) with memory=0")
        for mixer in encoder.stack.mixers():
            if "full" not in encoder.stack.sees(mixer):
                given, needed = type(mixer).__name__, "a source is read from both sides, and it reads one way"
                raise RecipeError(f"{where}.encoder.stack.block.mixer", given, needed, "use Attention")
        if encoder.pooler is not None or any(loss.pools for loss in self.objective.losses):
            needed = "losses read what the decoder writes, where nothing is pooled"
            raise RecipeError(f"{where}.encoder.pooler", encoder.pooler, needed, "use None, and other losses")
        if corruption is not None and not two:
            given, needed = type(corruption).__name__, "a decoder writes a target from a source"
            todo = "use Translate, with segments=Pairs, or decoder=None"
            raise RecipeError(f"{where}.objective.corruption", given, needed, todo)

    def _check_task(self, where: str) -> None:
        """What is predicted of rows must be what the model gives."""
        task = self.task
        if task is None:
            return
        path, name = f"{where}.objective.losses.{self.objective.losses.index(task)}", type(task).__name__
        if (task.sides == 2) != (self.decoder is not None):
            needed = "a decoder writes from a source" if self.decoder is None else "the decoder would have no source"
            raise RecipeError(path, name, needed, "give the recipe a decoder" if self.decoder is None else "use None")
        blocks = list(self.top.layers(self.encoder.width))
        widths = sorted({wide for _, wide in blocks} | {block.out_width(wide) for block, wide in blocks})
        if task.reading.layers and len(widths) > 1:
            needed = f"layers of widths {', '.join(map(str, widths))} have no sum"
            raise RecipeError(f"{path}.reading", type(task.reading).__name__, needed, "read the last one: Reading()")
        first, last = blocks[0][1], blocks[-1][0].out_width(blocks[-1][1])
        if task.task_encoder is not None and first != last:
            needed = f"words and what is said of them have one width, not {first} and {last}"
            raise RecipeError(
                f"{path}.task_encoder", type(task.task_encoder).__name__, needed, "use None, or another encoder"
            )
        if task.everywhere and task.pools:
            raise RecipeError(f"{path}.summary.dense", "pooler", "the pooler reads the last layer alone", "use own")
        if task.encodes is not None and task.encodes != self.pooling:
            needed = "encode makes vectors as the task learns them"
            raise RecipeError(f"{where}.pooling", self.pooling, needed, "change task.pooling instead")
        if task.needs_whole_step:
            needed = f"{name} compares the rows of a step with one another"
            if self.train.micro_tokens is not None:
                raise RecipeError(f"{where}.train.micro_tokens", self.train.micro_tokens, needed, "use None")
            if self.finetune is not None and self.finetune.batch_size < 2:
                raise RecipeError(
                    f"{where}.finetune.batch_size", self.finetune.batch_size, needed, "use 2 or more, such as 32"
                )
        for mixer in self.top.mixers():
            if task.kind is not None and task.kind not in self.top.sees(mixer):
                needed = f"{type(mixer).__name__} cannot hide what {task.kind} visibility hides"
                raise RecipeError(path, name, needed, "take another encoder")

    def _check_memory(self, where: str) -> None:
        """What is remembered must be what was read before, and must have been read as it is."""
        memory, segments, corruption = self.encoder.stack.memory, self.objective.segments, self.objective.corruption
        if memory < 1 or corruption is None:
            return
        if not hasattr(segments, "streams"):
            needed = f"rows of {type(segments).__name__} do not go on where others ended"
            raise RecipeError(f"{where}.encoder.stack.memory", memory, needed, "take segments=Stream, or use 0")
        if corruption.hides == "replacing":
            name = type(corruption).__name__
            needed = f"what {name} lets a model read has holes, and is read from both sides, of which memory has one"
            raise RecipeError(f"{where}.encoder.stack.memory", memory, needed, "take corruption=Shift, or use 0")

    def _check_ways(self, where: str) -> None:
        """What is read one way or both must be what each loss is made for."""
        corruption, two = self.objective.corruption, self.top.directions == 2
        one_way = two and corruption is not None and corruption.kind == "causal"
        if one_way and not getattr(self.objective.segments, "both", False):
            given, needed = type(self.objective.segments).__name__, "nothing would be read from its end"
            raise RecipeError(f"{where}.objective.segments", given, needed, "use Stream(both=true)")
        for index, loss in enumerate(self.objective.losses):
            if loss.one_way == one_way or isinstance(loss, Task):
                continue
            path, name = f"{where}.objective.losses.{index}", type(loss).__name__
            if loss.one_way:
                needed, todo = "it predicts from rows that are read one way by a stack with two", "use NextToken"
            else:
                needed, todo = "rows are read one way each, and it is for one width", "use NextWord"
            raise RecipeError(path, name, needed, todo)

    @property
    def task(self) -> Task | None:
        """What it is fine-tuned for."""
        return next((loss for loss in self.objective.losses if isinstance(loss, Task)), None)

    @property
    def reading(self) -> Literal["full", "causal"]:
        """Whom a token that the encoder reads sees: all, or those before it."""
        corruption = None if self.decoder is not None else self.objective.corruption
        one_way = corruption is not None and corruption.kind == "causal" and self.encoder.stack.directions == 1
        return "causal" if one_way else "full"

    @property
    def opener(self) -> Literal["cls", "sep"]:
        """The special before a text: [CLS], or of a model that read texts in streams both ways or with a state, what
        ends the others."""
        stack = self.encoder.stack
        return (
            "sep"
            if (stack.directions == 2 or stack.stateful) and hasattr(self.objective.segments, "streams")
            else "cls"
        )

    @property
    def recurrent(self) -> bool:
        """Whether the encoder reads one way, and knows of what it read no more than a state."""
        return self.reading == "causal" and self.encoder.stack.stateful

    @property
    def length(self) -> int:
        """Tokens of the longest text it can read."""
        positions = self.encoder.embed.positions
        return positions.length if isinstance(positions, (LearnedPositions, AxialPositions)) else 1 << 20

    @property
    def top(self) -> Stack:
        """The stack that the losses read: the decoder's where there is one."""
        return self.encoder.stack if self.decoder is None else self.decoder.stack

    @property
    def taught(self) -> bool:
        """Whether it is trained with a teacher."""
        reads = any("teacher" in loss.reads for loss in self.objective.losses)
        return reads or (self.distil is not None and self.distil.start is not None)

    def longest(self) -> int:
        """The longest example any phase trains on."""
        return max([phase.length for phase in self.train.phases] or [self.objective.segments.length])


def assemble(recipe: Recipe, heads: bool = True) -> Model:
    """The model that a recipe describes, with weights that mean nothing yet."""
    return Model(recipe.encoder, recipe.objective.losses if heads else (), recipe.decoder)


def build(recipe: Recipe) -> Model:
    """The model with fresh weights, the same for the same seed."""
    spec.check(recipe, recipe.name)
    with torch.random.fork_rng():  # a part's own constructor may draw from the global generator
        torch.manual_seed(recipe.train.seed)
        model = assemble(recipe)
    initialise(model, recipe.encoder.init, recipe.train.seed)
    if recipe.finetune is not None and recipe.finetune.freeze:
        model.freeze()
    if recipe.distil is not None and recipe.distil.freeze_positions and model.encoder.embed.positions is not None:
        model.encoder.embed.positions.requires_grad_(False)
    return model


def count_parameters(recipe: Recipe, heads: bool = True) -> int:
    """Every tensor once, nothing allocated; without heads, the published encoder class (with its pooler), or encoder
    and decoder."""
    with torch.device("meta"):
        spec.check(recipe, recipe.name)
        model = assemble(recipe, heads)
    return sum(parameter.numel() for parameter in model.parameters() if parameter.is_floating_point())
