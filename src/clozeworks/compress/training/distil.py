"""What cutting took away, learned again from the model before it."""

import copy
import dataclasses
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import nn

from clozeworks.compress.data import Data
from clozeworks.compress.step import B, Step, rebuild
from clozeworks.compress.structure import choose, copy_recipe, parameters
from clozeworks.core.batch import Batch, TeacherOutput
from clozeworks.core.bounds import Count, NonNegative, Positive
from clozeworks.core.errors import InputError, RecipeError
from clozeworks.exchange.bundle import Bundle
from clozeworks.exchange.weights.sparse import is_sparse
from clozeworks.model import Model
from clozeworks.nn.int8.parts import quantizable
from clozeworks.objectives.losses.attention_scores import AttentionScores
from clozeworks.objectives.losses.hidden_cosine import HiddenCosine
from clozeworks.objectives.losses.hidden_states import HiddenStates, HiddenStatesLayer
from clozeworks.objectives.losses.masked_lm import MaskedLMLayer
from clozeworks.objectives.losses.relations import Relations
from clozeworks.objectives.losses.soft_targets import SoftTargets
from clozeworks.objectives.objective import Loss
from clozeworks.optim.learning_rate import learning_rate
from clozeworks.optim.optimizers.adamw import AdamW
from clozeworks.optim.parameter_groups import build_optimizer
from clozeworks.optim.settings import Train
from clozeworks.recipe import Recipe, assemble
from clozeworks.starts.transfer import digest
from clozeworks.tasks.soft_labels import SoftLabels, read_logits, soft_labels
from clozeworks.train.loop import Policy, fit
from clozeworks.train.teacher import outline

BATCH_TOKENS = 4096  # that a step of unlabelled text has at most, as `Data.batches` makes them
MATCHING = 2 / 3  # of the steps, of TinyBERT's first stage
RATE, WIDTH = 1e-4, 768  # the learning rate of a model of this width; narrower ones learn faster


@dataclass(slots=True)
class DistilOriginal(Step):
    """Knowledge distillation (Hinton et al. 2015; Sanh et al. 2019) from the model before all steps, over so many
    `steps` of the data that steps read.

        L = L_own + soft * L_soft + hidden * mean over tokens of (1 - cos(s_i, t_i))

    L_own is the loss of the task on labelled rows, or of the pretraining objective on text. L_soft compares what both
    heads give: `SoftLabels` of a task that classifies, `SoftTargets` of a masked language model, nothing elsewhere. The
    last hidden states s, t have one width, for no step changes it. So it follows a step that cut something, and comes
    before those that change the tokens (vocab) or round the weights (int8). Nothing becomes smaller or faster by it:
    what it gives is quality, and what it costs is a training of `steps` steps with a pass of the teacher in each.

    `match` is what is compared inside. last: the cosine above. relations: attention and values of the last layer
    (`Relations`, MiniLM) in its place. layers: TinyBERT's two stages (Jiao et al. 2019), hidden states and attention
    scores of all layers alone (`HiddenStates`, whose map is the identity here, and `AttentionScores`) for two thirds
    of the steps, then L_own + soft * L_soft; the published second stage has no L_own. Both need as many heads as the
    original has, and layers a depth that divides the original's.
    """

    name: ClassVar[str] = "distil"
    main: ClassVar[str | None] = "steps"
    structural: ClassVar[bool] = False
    saves: ClassVar[bool] = False
    steps: Count = 300
    soft: NonNegative = 1.0
    hidden: NonNegative = 1.0
    match: Literal["last", "relations", "layers"] = "last"
    learning_rate: Positive | None = None  # None: 1e-4 x 768 / width

    def check(self, where: str) -> None:
        if not self.hidden and self.match != "last":
            raise RecipeError(f"{where}.hidden", 0, f"{self.match} are compared with this weight", "use 1")

    def apply(self, bundle: B, data: Data) -> B:
        """The same recipe with other weights; the teacher stays as it is."""
        copy_recipe(bundle)
        teacher, batches = check_teacher(bundle, data.teacher, self.name), epochs(bundle, data, self.steps)
        inner, left = self._inner_losses(), self.steps
        check_outlines(bundle, teacher, inner)
        if self.match == "layers":
            first = max(round(MATCHING * self.steps), 1)
            bundle = self._train(bundle, data, batches, first, make_student(bundle, inner, own=False), teacher)
            inner, left = (), self.steps - first
        if not left:
            return bundle
        student = make_student(bundle, (*inner, *soft_losses(bundle, teacher, self.soft)))
        return self._train(bundle, data, batches, left, student, teacher)

    def train_alone(self, bundle: B, data: Data) -> B:
        """The same number of steps on the same batches at the same rates, by the model's own loss and no teacher."""
        copy_recipe(bundle)
        batches = epochs(bundle, data, self.steps)
        return self._train(bundle, data, batches, self.steps, make_student(bundle, ()), None)

    def _train(
        self, bundle: B, data: Data, batches: Iterator[Batch], steps: int, student: Model, teacher: Bundle | None
    ) -> B:
        rate = self.learning_rate or RATE * WIDTH / bundle.recipe.encoder.width
        train = Train(steps=steps, learning_rate=rate, warmup=0.1, seed=data.seed)
        teaching = None if teacher is None else Teaching(teacher.model, student.specs, bundle.recipe.top.depth)
        return fit_student(bundle, student, batches, train, teaching)

    def _inner_losses(self) -> tuple[Loss, ...]:
        """What compares a model with its teacher inside; maps of theirs serve training alone."""
        if self.match == "layers":
            return HiddenStates(weight=self.hidden), AttentionScores(weight=self.hidden)
        if self.match == "relations":
            return (Relations(weight=self.hidden),)
        return (HiddenCosine(weight=self.hidden),) if self.hidden else ()


def check_outlines(bundle: Bundle, teacher: Bundle, losses: tuple[Loss, ...]) -> None:
    """Refuse losses that cannot compare these two."""
    own, theirs = outline(bundle.recipe), outline(teacher.recipe)
    for loss in losses:
        loss.compare(f"--apply distil: {loss.name}", own, theirs)


def soft_losses(bundle: Bundle, teacher: Bundle, soft: float) -> tuple[Loss, ...]:
    """What compares what the heads of both give; it has no weights."""
    recipe, model = bundle.recipe, bundle.model
    compared: list[Loss] = []
    if soft and recipe.task is not None:
        labels = soft_labels(model.head(recipe.task.name), recipe.task.name, soft)
        compared += [] if labels is None else [labels]
    elif soft and all(isinstance(each.model.head("masked_lm"), MaskedLMLayer) for each in (bundle, teacher)):
        compared.append(SoftTargets(weight=soft, over="hidden"))
    return tuple(compared)


def own_losses(recipe: Recipe) -> tuple[Loss, ...]:
    """Those that need no teacher."""
    return tuple(loss for loss in recipe.objective.losses if "teacher" not in loss.needs.reads)


def make_student(bundle: Bundle, more: tuple[Loss, ...], own: bool = True) -> Model:
    """A copy of the model with these losses beside its own, or in their place."""
    recipe, model = copy.deepcopy(bundle.recipe), bundle.model
    losses = (*(own_losses(recipe) if own else ()), *more)
    if not losses:
        needed = "it has no loss of its own, and nothing is compared"
        raise InputError("--apply distil", "soft and hidden of 0", needed, "leave them as they are")
    recipe.objective = dataclasses.replace(recipe.objective, losses=losses)
    student = assemble(recipe)
    there = dict(model.named_parameters(remove_duplicate=False))
    with torch.no_grad():
        for name, parameter in student.named_parameters():
            if name in there:
                parameter.copy_(there[name]).requires_grad_(there[name].requires_grad)
        if isinstance(states := student.head(HiddenStates.name), HiddenStatesLayer):
            nn.init.eye_(states.map.requires_grad_(False).weight)  # both have one width, and the same coordinates
            nn.init.zeros_(states.map.bias)
    return student.to(next(model.parameters()).device)


def fit_student(
    bundle: B,
    student: Model,
    batches: Iterator[Batch],
    train: Train,
    teacher: "Teaching | None" = None,
    after: Callable[[int], None] | None = None,
) -> B:
    """The bundle with what its copy learns of the batches; `after` is called with the number of each step. Without it,
    matrices with many zeros keep them."""
    train_student(student, batches, train, teacher, after)
    return take_learned(bundle, student)


def train_student(
    student: Model,
    batches: Iterator[Batch],
    train: Train,
    teacher: "Teaching | None" = None,
    after: Callable[[int], None] | None = None,
) -> None:
    """Train a copy of a model in place, as `fit_student` says."""
    device = next(student.parameters()).device
    policy = Policy(clip=train.clip, device=device, seed=train.seed, teacher=teacher)
    optimizer = build_optimizer(student, AdamW(), train.learning_rate)
    student.train()
    steps = ([batch] for batch in batches)
    after = after or hold_zeros(student)
    for step in fit(student, steps, optimizer, lambda n: learning_rate(n, train), steps=train.steps, policy=policy):
        after(step.number)


def take_learned(bundle: B, student: Model) -> B:
    """The bundle with the weights of its trained copy."""
    learned = {name: value.detach().cpu() for name, value in student.named_parameters(remove_duplicate=False)}
    weights = {name: learned.get(name, value) for name, value in parameters(bundle.model).items()}
    recipe = copy.deepcopy(bundle.recipe)
    return rebuild(bundle, recipe, choose(recipe, weights))


def hold_zeros(model: Model) -> Callable[[int], None]:
    """What keeps matrices as sparse as they are, to be called after each step: those that can be pruned, of encoder and
    decoder, and not heads that begin with zeros."""
    parts = {id(part.weight): part.weight for part in quantizable(model).values()}
    masks = [(weight, weight.detach() != 0) for weight in parts.values() if is_sparse(weight.detach())]

    @torch.no_grad()
    def hold(_: int) -> None:
        for weight, mask in masks:
            weight.copy_(torch.where(mask, weight, 0.0))

    return hold


class Teaching:
    """What the teacher makes of a batch, in one pass: hidden states, words, logits."""

    def __init__(self, model: Model, losses: tuple[Loss, ...], depth: int | None = None):
        self.model, self.depth = model.eval(), depth  # of the student
        compared = tuple(loss for loss in losses if "teacher" in loss.needs.reads)
        soft = next((loss for loss in compared if isinstance(loss, SoftLabels)), None)
        self.losses = (*compared, *(model.specs if soft else ()))
        words = model.head("masked_lm")
        self.words = words.read if isinstance(words, MaskedLMLayer) else None
        self.head = None if soft is None else model.head(soft.of)

    @torch.no_grad()
    def __call__(self, batch: Batch) -> Batch:
        hidden = self.model.read(batch.replace(past=None), self.losses, self.depth)
        logits = read_logits(self.head, hidden, batch)
        return batch.replace(teacher=TeacherOutput(hidden, self.words, logits=logits))


def epochs(bundle: Bundle, data: Data, steps: int) -> Iterator[Batch]:
    """Batches without end, each epoch in an order, and with masks, of its own."""
    for epoch in itertools.count():
        seed = data.seed + epoch
        yield from dataclasses.replace(data, seed=seed, tokens=steps * BATCH_TOKENS).batches(bundle)


def pick_teacher(bundle: Bundle, teacher: Bundle | None) -> Bundle:
    """The model before all steps; the model itself where there is none, or that one reads other tokens."""
    tokenizers = [None if each is None else each.tokenizer for each in (bundle, teacher)]
    same = len({None if each is None else each.fingerprint for each in tokenizers}) == 1
    return bundle if teacher is None or not same else teacher


def check_teacher(bundle: Bundle, teacher: Bundle | None, step: str) -> Bundle:
    """Refuse one that is missing, that is the model itself, or that reads other tokens."""
    where = f"--apply {step}"
    if teacher is None:
        given, needed = "no teacher", "it learns from the model before all steps"
        raise InputError(where, given, needed, "use Data(teacher=...)")
    # Layers that share weights have the same ones when there are fewer of them.
    if teacher.recipe.encoder == bundle.recipe.encoder and digest(teacher.model) == digest(bundle.model):
        given, needed = "the first step", "there is nothing to learn again before something was cut"
        raise InputError(where, given, needed, f"put it behind another: layers,{step}")
    both = (bundle.tokenizer, teacher.tokenizer)
    if len({None if each is None else each.fingerprint for each in both}) > 1:
        given, needed = "other tokens than the original has", "both read the same tokens"
        raise InputError(where, given, needed, "put it before vocab")
    return teacher
