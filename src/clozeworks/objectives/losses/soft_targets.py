"""Learn what a teacher thinks of every word."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from clozeworks.core.batch import Batch, Hidden, WordScores
from clozeworks.core.bounds import Positive
from clozeworks.core.errors import RecipeError
from clozeworks.nn.embed import EmbedLayer
from clozeworks.nn.kernels.linear import linear
from clozeworks.objectives.losses import cross_entropy
from clozeworks.objectives.losses.masked_lm import MaskedLMLayer, Over
from clozeworks.objectives.objective import Loss, LossLayer, Needs, Outline


@dataclass(slots=True)
class SoftTargets(Loss):
    """The teacher's distribution over the words as the target (Hinton et al. 2015, 2; Sanh et al. 2019, 3).

    loss_i = T^2 KL(softmax(t_i / T) || softmax(s_i / T)),  ds_i = T (softmax(s_i / T) - softmax(t_i / T))

    with logits s of the student's own masked-LM head, t of the teacher's, and temperature T; T^2 keeps the gradient as
    large as that of hard targets whatever T is. `over` all tokens but padding, as the paper, or the hidden ones alone,
    which spares both models most of the head and of the last block. Where one vocabulary has rows that no token uses,
    the first rows, which both have, are compared. It has no weights of its own.

    [T, E] of both -> a number. O(T E V) for each, memory of one piece of the logits, beside a pass of the teacher.
    """

    name: ClassVar[str] = "soft_targets"
    needs: ClassVar[Needs] = Needs(reads=frozenset({"teacher", "masked_lm"}))
    temperature: Positive = 2.0
    over: Over = "tokens"

    def count(self, batch: Batch) -> int:
        if self.over == "tokens":
            return batch.real
        return 0 if batch.labels is None else len(batch.labels)

    def read_positions(self, batch: Batch) -> Tensor | None:
        return None if self.over == "tokens" else batch.targets

    def compare(self, where: str, student: Outline, teacher: Outline) -> None:
        if "masked_lm" not in teacher.losses:
            given, needed = f"{teacher.name} has no masked-LM head", "the teacher must give words"
            raise RecipeError(where, given, needed, "take a teacher with one, or compare hidden states: HiddenCosine")

    def build(self, width: int, embed: EmbedLayer) -> "SoftTargetsLayer":
        return SoftTargetsLayer(self.temperature, self.over)


class SoftTargetsLayer(LossLayer):
    """The sum over tokens, by the head of another loss; no weights."""

    def __init__(self, temperature: float, over: Over):
        super().__init__()
        self.temperature = temperature
        self.over: Over = over
        self._head: tuple[MaskedLMLayer, ...] = ()

    def connect(self, heads: Mapping[str, LossLayer]) -> None:
        head = heads["masked_lm"]
        assert isinstance(head, MaskedLMLayer)
        self._head = (head,)  # a reference, not a child

    def forward(self, hidden: Hidden, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        assert batch.teacher is not None
        assert batch.teacher.words is not None
        asked, theirs = self._head[0].asked(hidden, batch, self.over), batch.teacher.hidden
        with torch.no_grad():
            taught = batch.teacher.words(batch.solid(theirs.last) if self.over == "tokens" else theirs.at(batch))
        student = self._head[0].words(batch.solid(asked) if self.over == "tokens" else asked)
        return divergence(student, taught, self.temperature), {}


def divergence(student: WordScores, teacher: WordScores, temperature: float) -> Tensor:
    """The summed T^2 KL(teacher || student) of T tokens, with its gradients made on the way.

    As in `cross_entropy`: a piece of the tokens at a time, whose two sets of logits and their difference together take
    `BUDGET` bytes at most.
    """
    return _Divergence.apply(student.asked, student.table, student.bias, teacher, temperature, torch.is_grad_enabled())  # pyright: ignore[reportReturnType]


class _Divergence(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, table: Tensor, bias: Tensor, teacher: WordScores, temperature: float, learns: bool
    ):
        """The divergence of a piece of the tokens at a time; gradients are made on the way."""
        exact, words = torch.promote_types(x.dtype, torch.float32), min(len(table), len(teacher.table))
        total = x.new_zeros((), dtype=exact)
        d_x, d_table, d_bias = (torch.zeros_like(t) if learns else t for t in (x, table, bias))
        # Dividing what goes into the products divides the logits: less than dividing these.
        cool, own = 1 / temperature, table[:words]
        own_bias, their_bias = bias[:words] * cool, teacher.bias[:words] * cool
        autocast = not x.is_meta and torch.is_autocast_enabled(x.device.type)
        rows = max(1, cross_entropy.BUDGET // (3 * exact.itemsize * words))
        for begin in range(0, len(x), rows):
            piece = x[begin : begin + rows]
            s = linear(piece * cool, own, own_bias).to(exact)
            t = linear(teacher.asked[begin : begin + rows] * cool, teacher.table[:words], their_bias).to(exact)
            # KL = sum_v p_t (t - s) - logsumexp(t) + logsumexp(s), and the best word's share gives the logsumexp.
            gap, best_t, best_s = t - s, t.amax(-1), s.amax(-1)
            p_t, p_s = torch.softmax(t, -1, out=t), torch.softmax(s, -1, out=s)
            normal = best_s - p_s.amax(-1).log() - best_t + p_t.amax(-1).log()
            total += temperature**2 * (gap.mul_(p_t).sum(-1) + normal).sum()
            if learns:
                d_z = p_s.sub_(p_t)
                d_bias[:words].add_(d_z.sum(0), alpha=temperature)
                d_x[begin : begin + rows] = linear(d_z, own.t(), None).mul_(temperature)
                if autocast:
                    d_table[:words].add_(d_z.t() @ piece, alpha=temperature)
                else:
                    d_table[:words].addmm_(d_z.t(), piece, alpha=temperature)
                del d_z
            del s, t, gap, p_s, p_t  # before the next piece is made
        ctx.save_for_backward(d_x, d_table, d_bias)
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Tensor):
        return *(d * grads[0].to(d.dtype) for d in ctx.saved_tensors), None, None, None
