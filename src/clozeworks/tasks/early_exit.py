"""Early exit: a text that an early layer is sure of does not pass through the others."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from clozeworks.core.batch import Batch, Hidden
from clozeworks.core.bounds import Count, NonNegative
from clozeworks.core.errors import RecipeError
from clozeworks.nn.architecture import Architecture
from clozeworks.nn.embed import EmbedLayer
from clozeworks.nn.init import CustomInit
from clozeworks.nn.kernels.linear import Linear
from clozeworks.objectives.objective import Corruption, Loss, LossLayer, Needs
from clozeworks.tasks.classify import LABEL, Classify, ClassifyLayer
from clozeworks.tasks.pair import Pair
from clozeworks.tasks.soft_labels import Of
from clozeworks.tasks.task import Task


@dataclass(slots=True)
class Exits(Loss):
    """Early exit by entropy (Xin et al. 2020, DeeBERT; Schwartz et al. 2020): a linear classifier behind each of the
    layers `after`, counted from 1, beside the task that it is `of`.

        z_l = W_l n(h_l) + b_l,  p = softmax(z_l);  z_l is the answer if  - sum_k p_k log p_k < threshold

    h_l is what the summary of the task picks of layer l (its first token, the mean, ...), and n brings it to mean 0 and
    variance 1, so that layers of any scale learn at one rate: the papers have a pooler or nothing there. The entropy of
    k labels is between 0 and log k: with a threshold of 0 no text exits, above log k all do at the first exit.
    As a loss it is the sum over exits of their cross-entropy of the label. Where the answer is not asked for
    (`TextEncoder.forward`, an ONNX file) the pass has all layers, and the head of the task decides.

    [B, L, D] -> [N, labels] an exit, which costs D x labels an example; one that exits costs no later layer.
    """

    name: ClassVar[str] = "exits"
    decides: ClassVar[bool] = True
    after: tuple[Count, ...] = (1,)
    threshold: NonNegative = 0.3
    labels: Count = 2
    of: Of = "classify"

    @property
    def needs(self) -> Needs:  # pyright: ignore[reportIncompatibleVariableOverride]
        return Needs(reads=frozenset({"rows", self.of}), hidden=frozenset({"layers"}))

    def check_model(self, where: str, model: Architecture, corruption: Corruption | None) -> None:
        stack, name = model.top, type(model.top).__name__
        if model.decoder is not None or not stack.resumable or stack.memory:
            needed = "a pass through it cannot be ended after some of its layers"
            raise RecipeError(where, name, needed, "leave the exits out")
        if not self.after or list(self.after) != sorted({*self.after}) or self.after[-1] >= stack.depth:
            needed = f"layers in their order, before the last of {stack.depth}, are needed"
            raise RecipeError(f"{where}.after", self.after, needed, "change it, or leave the exits out")
        if any(block.out_width(wide) != model.width for block, wide in stack.layers(model.width)):
            needed = "exits are for layers of one width"
            raise RecipeError(where, name, needed, "leave the exits out")

    def count(self, batch: Batch) -> int:
        return len(batch.example[LABEL]) if self.computed(batch) else 0

    def computed(self, batch: Batch) -> bool:
        return LABEL in batch.example

    def build(self, width: int, embed: EmbedLayer) -> "ExitsLayer":
        return ExitsLayer(self, width)


def make_exits(task: Task | None, depth: int, after: tuple[int, ...], threshold: float, where: str) -> Exits:
    """The exits of a classifier so deep; refused for what has no label of a whole text."""
    if not isinstance(task, Classify):
        given = "a model without a task" if task is None else task.name
        raise RecipeError(where, given, "an exit answers with the label of a whole text", "leave exit out")
    if task.problem != "single_label":
        needed = "the entropy that decides is that of one label among several"
        raise RecipeError(where, task.problem, needed, "leave exit out")
    if isinstance(task, Pair) and task.both:
        raise RecipeError(where, "both", "two readings of a pair are decided together", "leave exit out")
    if task.everywhere or task.summary.place == "concat":
        needed = "its head reads more than a layer's one vector of a text"
        raise RecipeError(where, type(task).__name__, needed, "leave exit out")
    if depth < 2:
        raise RecipeError(where, f"{depth} layer", "an exit stands before the last of several", "leave exit out")
    of: Of = "pair" if isinstance(task, Pair) else "classify"
    return Exits(after=after or tuple(range(1, depth)), threshold=threshold, labels=len(task.labels), of=of)


class Exit(Linear, CustomInit):
    """A linear classifier that begins at 0: all labels alike."""

    def __init__(self, width: int, labels: int):
        super().__init__(width, labels)
        nn.init.zeros_(self.weight)
        nn.init.zeros_(self.bias)

    def begin(self, name: str, parameter: Tensor, deviation: float, generator: torch.Generator) -> None:
        nn.init.zeros_(parameter)


class ExitsLayer(LossLayer):
    """The classifiers of `Exits`, in the order of their layers."""

    def __init__(self, spec: Exits, width: int):
        super().__init__()
        self.after, self.threshold, self.of = spec.after, spec.threshold, spec.of
        self.out = nn.ModuleList(Exit(width, spec.labels) for _ in spec.after)
        self._head: tuple[ClassifyLayer, ...] = ()

    @property
    def head(self) -> ClassifyLayer:
        """That of the task."""
        return self._head[0]

    def connect(self, heads: Mapping[str, LossLayer]) -> None:
        head = heads[self.of]
        assert isinstance(head, ClassifyLayer)
        self._head = (head,)  # a reference, not a child

    def logits_after(self, number: int, layer: Tensor, batch: Batch) -> Tensor:
        """[N, labels] of exit `number`, from the vectors of its layer [B, L, D]."""
        summary = self.head.summary
        places = summary.spec.read_positions(batch)
        h = summary.picked(layer, batch.firsts if places is None else places, batch)
        return self.out[number](F.layer_norm(h, h.shape[-1:]))

    def sure(self, logits: Tensor) -> Tensor:
        """bool [N]: whose entropy is below the threshold."""
        chances = logits.float().log_softmax(-1)
        return -(chances.exp() * chances).sum(-1) < self.threshold

    def forward(self, hidden: Hidden, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        exits = enumerate(self.after)
        logits = (self.logits_after(number, hidden.layers[layer], batch) for number, layer in exits)
        return torch.stack([self.head.compare(each, batch)[0] for each in logits]).sum(), {}
