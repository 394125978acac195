"""A recipe: everything that defines a pretrained model, as one tree of specs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from clozeworks.core import spec
from clozeworks.core.errors import RecipeError
from clozeworks.core.spec import Spec
from clozeworks.data.shards.corpus import Corpus
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.model import Encoder, Model, initialise
from clozeworks.nn.architecture import Architecture
from clozeworks.nn.decoder import Decoder
from clozeworks.nn.pooling import Pooling
from clozeworks.nn.stack import Stack
from clozeworks.objectives.objective import Objective
from clozeworks.optim.settings import Distil, Finetune, Train
from clozeworks.starts.initializer import Fresh, Initializer, TeacherVectors
from clozeworks.tasks.task import Task


@dataclass(slots=True)
class Recipe(Spec):
    """Encoder, objective, training: everything that defines a model, and what it is then fine-tuned for."""

    name: str
    encoder: Encoder
    objective: Objective
    train: Train
    distil: Distil | None = None
    decoder: Decoder | None = None
    finetune: Finetune | None = None
    pooling: Pooling | None = None
    start: tuple[Initializer, ...] = ()  # how fresh weights begin otherwise than at random

    def check(self, where: str) -> None:
        """Ask each part whether it goes with the others: the first that does not says why."""
        objective, model, task = self.objective, self.architecture, self.task
        self.encoder.check_readers(f"{where}.encoder", objective.losses, self.decoder)
        if self.decoder is not None:
            width = self.encoder.width
            self.decoder.fit(f"{where}.decoder", self.encoder.stack.out_width(width), width)
        objective.check_model(where, model)
        if task is not None:
            batch_size = None if self.finetune is None else self.finetune.batch_size
            micro_tokens = self.train.micro_tokens
            task.check_training(where, micro_tokens=micro_tokens, batch_size=batch_size, pooling=self.pooling)
        for side, embed in (("encoder", self.encoder.embed), model.scoring):
            if embed.positions is not None:
                embed.positions.check_length(f"{where}.{side}.embed.positions", self.longest())
        if self.distil is not None:
            self.distil.check_model(f"{where}.distil", model)
        for index, initializer in enumerate(self.start):
            initializer.check_model(f"{where}.start.{index}", model, objective)
        for index, phase in enumerate(self.train.phases):
            if phase.mask_rate is not None:
                objective.at_rate(phase.mask_rate, f"{where}.train.phases.{index}.mask_rate")
        self.train.check_length(f"{where}.train", self.longest())

    @property
    def architecture(self) -> Architecture:
        """What its parts must go with."""
        inner = self.encoder
        return Architecture(width=inner.width, embed=inner.embed, stack=inner.stack, decoder=self.decoder)

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
        return "sep" if (stack.directions == 2 or stack.stateful) and self.objective.segments.continues else "cls"

    @property
    def recurrent(self) -> bool:
        """Whether the encoder reads one way, and knows of what it read no more than a state."""
        return self.reading == "causal" and self.encoder.stack.stateful

    @property
    def brief(self) -> bool:
        """Whether the encoder is one that is pretrained for minutes: narrow, and without dropout, since it reads its
        text a few times at most."""
        drops = any(getattr(part, "dropout", 0.0) for _, part in spec.walk(self.encoder))
        return self.encoder.width < 512 and not drops and not self.recurrent

    @property
    def length(self) -> int:
        """Tokens of the longest text it can read."""
        positions = self.encoder.embed.positions
        return 1 << 20 if positions is None or positions.limit is None else positions.limit

    @property
    def top(self) -> Stack:
        """The stack that the losses read: the decoder's where there is one."""
        return self.encoder.stack if self.decoder is None else self.decoder.stack

    @property
    def taught(self) -> bool:
        """Whether it is trained with a teacher."""
        reads = any("teacher" in loss.needs.reads for loss in self.objective.losses)
        return reads or self.reads_texts or (self.distil is not None and self.distil.start is not None)

    @property
    def reads_texts(self) -> bool:
        """Whether its teacher reads texts, for which it may have any tokenizer."""
        reads = any("texts" in loss.needs.reads for loss in self.objective.losses)
        return reads or any(each.reads_teacher for each in self.start)

    def longest(self) -> int:
        """The longest example any phase trains on."""
        return max([phase.length for phase in self.train.phases] or [self.objective.segments.length])


def assemble(recipe: Recipe, heads: bool = True) -> Model:
    """The model that a recipe describes, with weights that mean nothing yet."""
    return Model(recipe.encoder, recipe.objective.losses if heads else (), recipe.decoder)


def build(recipe: Recipe) -> Model:
    """The model with fresh weights, the same for the same seed."""
    spec.check(recipe, recipe.name)
    if not recipe.encoder.init:  # a published config may say so, and brings its weights
        needed = "fresh weights would all be 0, and no gradient would reach them"
        raise RecipeError(f"{recipe.name}.encoder.init", 0, needed, "use 0.02")
    with torch.random.fork_rng():  # a part's own constructor may draw from the global generator
        torch.manual_seed(recipe.train.seed)
        model = assemble(recipe)
    initialise(model, recipe.encoder.init, recipe.train.seed)
    begin(recipe, model)
    if recipe.finetune is not None and recipe.finetune.freeze:
        model.freeze()
    if recipe.distil is not None and recipe.distil.freeze_positions and model.encoder.embed.positions is not None:
        model.encoder.embed.positions.requires_grad_(False)
    return model


def begin(
    recipe: Recipe,
    model: Model,
    corpora: Sequence[tuple[Corpus, float]] | None = None,
    tokenizer: Tokenizer | None = None,
    teacher: TeacherVectors | None = None,
) -> list[str]:
    """Let fresh weights begin as `Recipe.start` says: without text what needs none, with text the rest.

    `tokenizer` is that of the text. Returns what to report.
    """
    fresh = Fresh(
        model=model,
        objective=recipe.objective,
        deviation=recipe.encoder.init,
        seed=recipe.train.seed,
        corpora=corpora or (),
        tokenizer=tokenizer,
        teacher=teacher,
    )
    chosen = [each for each in recipe.start if each.reads_text == (corpora is not None)]
    return [note for initializer in chosen for note in initializer.begin(fresh)]


def count_parameters(recipe: Recipe, heads: bool = True) -> int:
    """Every tensor once, nothing allocated; without heads, the published encoder class (with its pooler), or encoder
    and decoder."""
    with torch.device("meta"):
        spec.check(recipe, recipe.name)
        model = assemble(recipe, heads)
    weights = (each for each in model.parameters() if each.is_floating_point() or each.dtype == torch.int8)
    return sum(parameter.numel() for parameter in weights)
