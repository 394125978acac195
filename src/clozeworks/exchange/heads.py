"""Classes of theirs with the head of a task: what it reads, what its tensors are called, what the config says of it."""

import dataclasses
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from clozeworks.core import spec
from clozeworks.core.errors import InputError, RecipeError
from clozeworks.exchange.config_table import OWN_FORMAT
from clozeworks.model import Pooler
from clozeworks.recipe import Recipe
from clozeworks.tasks.layer_selection import Reading
from clozeworks.tasks.summary import Summary
from clozeworks.tasks.task import PretrainedHead, Task, find_task
from clozeworks.tasks.template import InputTemplate

CLASSES = ("classify", "pair")
OURS = "clozeworks"  # the field of their config that keeps what has no other place in it
POOLER = "encoder.pooler.dense."
MANY, SCORE = "multi_label_classification", "regression"


@dataclass(frozen=True)
class Head:
    """A class of theirs that decides: of a whole example from its `summary`, or of every token."""

    name: str
    tasks: tuple[str, ...]  # of ours that it serves, by name
    tensors: tuple[tuple[str, str], ...]  # (ours below heads.TASK., theirs)
    summary: Summary | None = None
    rate: str | None = None  # the field of the config for its rate of dropout
    usual: float | None = None  # the rate without that field; None: the encoder's
    bias: bool = True
    fixed: dict[str, Any] = field(default_factory=dict)  # fields of the config of which one value is supported
    besides: tuple[str, ...] = ()  # losses of pretraining whose head the class has too

    def names(self, task: str) -> tuple[tuple[str, str], ...]:
        return tuple((f"heads.{task}.{ours}", theirs) for ours, theirs in self.tensors)

    def agrees(self, config: dict[str, Any]) -> bool:
        return all(config.get(name, value) == value for name, value in self.fixed.items())

    def serves(self, task: Task) -> bool:
        """Whether it is the class for it; of several that do, the one that reads the same token."""
        summary = task.head_parts().summary
        same = self.summary is None or (summary is not None and self.summary.place == summary.place)
        return task.name in self.tasks and same

    # ---- in

    def read(self, config: dict[str, Any], recipe: Recipe, template: InputTemplate) -> Task:
        """The task of a config, for an encoder as read."""
        for name, value in self.fixed.items():
            if config.get(name, value) != value:
                given, needed = f"{name} {config[name]}", f"{name} {value} is supported"
                raise InputError("config.json", given, needed, "choose a model with the published head")
        labels, problem = labels_of(config), config.get("problem_type")
        kept = _kept(config)
        if kept is not None and kept.name in self.tasks and kept.labels in ((), labels):
            return kept
        score = problem == SCORE or (problem is None and len(labels) == 1)
        head = PretrainedHead(
            template=template,
            labels=labels,
            problem="regression" if score else "multi_label" if problem == MANY else "single_label",
            dropout=self._rate(config, recipe),
            summary=None if self.summary is None else self._summary(config, recipe),
            bias=self.bias,
            causal=recipe.reading == "causal",
        )
        kinds = [find_task(name) for name in self.tasks]
        return next(kind for kind in reversed(kinds) if kind.claims(head)).from_head(head)

    def _summary(self, config: dict[str, Any], recipe: Recipe) -> Summary:
        encoder = recipe.encoder
        assert self.summary is not None
        wide = self.summary.dense == "own" and encoder.stack.out_width(encoder.width) != encoder.width
        return dataclasses.replace(
            self.summary, dropout=self._rate(config, recipe), width=encoder.width if wide else None
        )

    def _rate(self, config: dict[str, Any], recipe: Recipe) -> float:
        given = config.get(self.rate) if self.rate else None
        usual = recipe.encoder.stack.block_at(0).dropout if self.usual is None else self.usual
        return usual if given is None else given

    # ---- out

    def settle(self, recipe: Recipe, task: Task, tensors: dict[str, Tensor]) -> Task:
        """The equal task that the class can hold: a pooler is a layer of one's own that reads the first token, and what
        a head adds can be added by the norm before it."""
        own, parts = f"heads.{task.name}.summary.dense.", task.head_parts()
        if parts.bias and not self.bias and task != task.without_bias():
            _fold(recipe, tensors, f"heads.{task.name}.out.")
            task = task.without_bias()
        if self.summary is None or parts.summary is None:
            return task
        if (self.summary.dense, parts.summary.dense) == ("pooler", "own") and _pools(parts.summary, recipe):
            _moved(tensors, own, POOLER)
            recipe.encoder.pooler, dense = Pooler(), "pooler"
        elif (self.summary.dense, parts.summary.dense) == ("own", "pooler") and _pools(self.summary, recipe):
            _moved(tensors, POOLER, own)
            recipe.encoder.pooler, dense = None, "own"
        else:
            return task
        return task.with_summary(dataclasses.replace(parts.summary, dense=dense, early=self.summary.early, width=None))

    def write(self, recipe: Recipe, task: Task, where: str) -> dict[str, Any]:
        """What the config says of the task, or a refusal that names the first field which the class cannot hold.

        A rate of dropout that it has no field for is left out: no answer depends on it.
        """
        encoder, parts = recipe.encoder, task.head_parts()
        summary, bias = parts.summary, parts.bias
        facts = [(type(task.reading) is Reading, "reading", task.reading), (bias == self.bias, "bias", bias)]
        if self.summary is not None and summary is not None:
            wanted = self._summary({}, recipe)
            same = dataclasses.replace(wanted, dropout=summary.dropout, early=summary.early)
            width = summary.out_width(encoder.stack.out_width(encoder.width))
            same = dataclasses.replace(same, width=summary.width) if width == encoder.width else same
            facts += [(summary == same, "summary", summary)]
        facts += [(not part, name, part) for name, part in parts.own.items()]
        for holds, name, value in facts:
            if not holds:
                todo = f"{OWN_FORMAT}{self._advice(recipe) if name == 'summary' else ''}"
                raise RecipeError(f"{where}.{name}", value, f"{self.name} has no such head", todo)
        config: dict[str, Any] = {"architectures": [self.name], OURS: {"task": spec.to_dict(task)}, **self.fixed}
        if self.rate is not None:
            config[self.rate] = parts.dropout if summary is None else summary.dropout
        config |= task.head_config()
        if labels := task.output_names:
            config["id2label"] = {str(number): label for number, label in enumerate(labels)}
            config["label2id"] = {label: number for number, label in enumerate(labels)}
        return config

    def _advice(self, recipe: Recipe) -> str:
        """How to come to a head that the class can hold; a layer of one's own becomes its pooler (`settle`)."""
        wanted = self._summary({}, recipe)
        asked = f"place={wanted.place}, dense={wanted.dense and 'own'}, activation={wanted.activation}"
        asked = f"Summary({asked}, width={wanted.width})" if wanted.width else f"Summary({asked})"
        return f", or fine-tune with --set 'task.summary={asked}'; --to sentence-transformers writes the encoder alone"


def answers(name: str, rate: str | None = None, usual: float = 0.0) -> Head:
    """Their class that finds an answer in a passage, alike in all families but for the dropout."""
    return Head(f"{name}ForQuestionAnswering", ("qa",), (("out", "qa_outputs"),), None, rate, usual)


def labels_of(config: dict[str, Any]) -> tuple[str, ...]:
    """The labels in the order of their numbers; without names, as their library calls them."""
    given = config.get("id2label")
    if not given:
        return tuple(f"LABEL_{number}" for number in range(config.get("num_labels", 2)))
    try:
        numbers = {int(number): str(label) for number, label in given.items()}
    except (AttributeError, ValueError):
        raise InputError("config.json", f"id2label {given!r:.60}", "a number for each label", "mend the file") from None
    labels = tuple(numbers[number] for number in sorted(numbers))
    if sorted(numbers) != list(range(len(numbers))) or len(set(labels)) < len(labels):
        given = f"id2label {given!r:.60}"
        raise InputError("config.json", given, "numbers from 0 on and labels that differ are needed", "mend the file")
    return labels


def _kept(config: dict[str, Any]) -> Task | None:
    """The task as it was when the directory was written here; None where it was not, or by a later version."""
    given = config.get(OURS)
    try:
        task = spec.from_dict(given["task"], where="config.json") if isinstance(given, dict) else None
    except (KeyError, RecipeError):
        return None
    return task if isinstance(task, Task) else None


def _pools(summary: Summary, recipe: Recipe) -> bool:
    """Whether it is what a pooler is."""
    width = recipe.encoder.stack.out_width(recipe.encoder.width)
    return (summary.place, summary.activation, summary.out_width(width)) == ("first", "tanh", width)


def _moved(tensors: dict[str, Tensor], source: str, target: str) -> None:
    for name in [name for name in tensors if name.startswith(source)]:
        tensors[target + name.removeprefix(source)] = tensors.pop(name)


def _fold(recipe: Recipe, tensors: dict[str, Tensor], head: str) -> None:
    """W h + b = W (h + v) with the shortest v for which W v = b: the last norm adds it."""
    weight, bias = tensors[head + "weight"].double(), tensors[head + "bias"].double()
    shift = torch.linalg.pinv(weight) @ bias
    if not torch.allclose(weight @ shift, bias, atol=1e-6):
        needed = "the class adds nothing, and no vector is the same for these weights"
        raise RecipeError(f"{recipe.name}.objective.losses.0.bias", True, needed, "train it with bias=False")
    norm = f"encoder.stack.blocks.{recipe.encoder.stack.depth - 1}.ffn_norm.bias"
    tensors[norm] = tensors[norm] + shift.to(tensors[norm].dtype)
    del tensors[head + "bias"]
