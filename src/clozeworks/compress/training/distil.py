"""What cutting took away, learned again from the model before it."""

import copy
import dataclasses
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch

from clozeworks.compress.data import Data
from clozeworks.compress.step import B, Step, rebuild
from clozeworks.compress.structure import choose, copy_recipe, parameters
from clozeworks.core.batch import Batch, TeacherOutput
from clozeworks.core.bounds import Count, NonNegative, Positive
from clozeworks.core.errors import InputError
from clozeworks.exchange.bundle import Bundle
from clozeworks.exchange.weights.sparse import is_sparse
from clozeworks.model import Model
from clozeworks.objectives.losses.hidden_cosine import HiddenCosine
from clozeworks.objectives.losses.masked_lm import MaskedLMLayer
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

BATCH_TOKENS = 4096  # that a step of unlabelled text has at most, as `Data.batches` makes them
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
    """

    name: ClassVar[str] = "distil"
    main: ClassVar[str | None] = "steps"
    structural: ClassVar[bool] = False
    saves: ClassVar[bool] = False
    steps: Count = 300
    soft: NonNegative = 1.0
    hidden: NonNegative = 1.0
    learning_rate: Positive | None = None  # None: 1e-4 x 768 / width

    def apply(self, bundle: B, data: Data) -> B:
        """The same recipe with other weights; the teacher stays as it is."""
        copy_recipe(bundle)
        teacher = check_teacher(bundle, data.teacher, self.name)
        student = make_student(bundle, compared_losses(bundle, teacher, self.soft, self.hidden))
        return self._train(bundle, data, student, Teaching(teacher.model, student.specs))

    def train_alone(self, bundle: B, data: Data) -> B:
        """The same number of steps on the same batches at the same rates, by the model's own loss and no teacher."""
        copy_recipe(bundle)
        return self._train(bundle, data, make_student(bundle, ()), None)

    def _train(self, bundle: B, data: Data, student: Model, teacher: "Teaching | None") -> B:
        rate = self.learning_rate or RATE * WIDTH / bundle.recipe.encoder.width
        train = Train(steps=self.steps, learning_rate=rate, warmup=0.1, seed=data.seed)
        return fit_student(bundle, student, epochs(bundle, data, self.steps), train, teacher)


def compared_losses(bundle: Bundle, teacher: Bundle, soft: float = 1.0, hidden: float = 1.0) -> tuple[Loss, ...]:
    """The losses that compare a model with its teacher; none of them has weights."""
    recipe, model = bundle.recipe, bundle.model
    compared: list[Loss] = [HiddenCosine(weight=hidden)] if hidden else []
    if soft and recipe.task is not None:
        labels = soft_labels(model.head(recipe.task.name), recipe.task.name, soft)
        compared += [] if labels is None else [labels]
    elif soft and all(isinstance(each.model.head("masked_lm"), MaskedLMLayer) for each in (bundle, teacher)):
        compared.append(SoftTargets(weight=soft, over="hidden"))
    return tuple(compared)


def own_losses(recipe: Recipe) -> tuple[Loss, ...]:
    """Those that need no teacher."""
    return tuple(loss for loss in recipe.objective.losses if "teacher" not in loss.needs.reads)


def make_student(bundle: Bundle, more: tuple[Loss, ...]) -> Model:
    """A copy of the model with these losses beside its own."""
    recipe, model = copy.deepcopy(bundle.recipe), bundle.model
    losses = (*own_losses(recipe), *more)
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
    """What keeps matrices as sparse as they are, to be called after each step."""
    sparse = [weight for weight in model.parameters() if weight.is_floating_point() and is_sparse(weight.detach())]
    masks = [(weight, weight.detach() != 0) for weight in sparse]

    @torch.no_grad()
    def hold(_: int) -> None:
        for weight, mask in masks:
            weight.copy_(torch.where(mask, weight, 0.0))

    return hold


class Teaching:
    """What the teacher makes of a batch, in one pass: hidden states, words, logits."""

    def __init__(self, model: Model, losses: tuple[Loss, ...]):
        self.model = model.eval()
        compared = tuple(loss for loss in losses if "teacher" in loss.needs.reads)
        soft = next((loss for loss in compared if isinstance(loss, SoftLabels)), None)
        self.losses = (*compared, *(model.specs if soft else ()))
        words = model.head("masked_lm")
        self.words = words.read if isinstance(words, MaskedLMLayer) else None
        self.head = None if soft is None else model.head(soft.of)

    @torch.no_grad()
    def __call__(self, batch: Batch) -> Batch:
        hidden = self.model.read(batch.replace(past=None), self.losses)
        logits = read_logits(self.head, hidden, batch)
        return batch.replace(teacher=TeacherOutput(hidden, self.words, logits=logits))


def epochs(bundle: Bundle, data: Data, steps: int) -> Iterator[Batch]:
    """Batches without end, each epoch in an order, and with masks, of its own."""
    for epoch in itertools.count():
        seed = data.seed + epoch
        yield from dataclasses.replace(data, seed=seed, tokens=steps * BATCH_TOKENS).batches(bundle)


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
