"""Give the teacher's attention scores, head by head."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from clozeworks.core.batch import Batch, Hidden
from clozeworks.core.errors import RecipeError
from clozeworks.core.token_info import PADDING, visible
from clozeworks.nn.embed import EmbedLayer
from clozeworks.objectives.losses.exact import exact
from clozeworks.objectives.losses.hidden_states import divides
from clozeworks.objectives.objective import Loss, LossLayer, Needs, Outline


@dataclass(slots=True)
class AttentionScores(Loss):
    """The distance of attention scores before the softmax (Jiao et al. 2019, 3.1).

    loss_i = sum_m mean_h mean_j (a_hij^m - b_hij^g(m))^2,  m = 1 ... M,  g(m) = m N / M

    over all tokens i but padding and the tokens j that i sees, with scores a of the student's M layers and b of the
    teacher's N; both need equally many heads. Attention takes the dense path in these layers: quadratic in memory, too.

    The published code sets the scores of hidden pairs to 0 on both sides and divides by all pairs, padding too, so that
    its loss depends on how rows are filled; here each token has the mean over what it sees, and packed rows give what
    single ones give. For full rows the two are equal.

    Scores [B, H, L, L] of both -> a number.
    """

    name: ClassVar[str] = "attention_scores"
    needs: ClassVar[Needs] = Needs(reads=frozenset({"teacher"}), hidden=frozenset({"scores"}))

    def read_positions(self, batch: Batch) -> Tensor | None:
        return batch.firsts[:0]

    def blocks(self, depth: int, of: int) -> tuple[int, ...]:
        return tuple((layer + 1) * of // depth - 1 for layer in range(depth))

    def compare(self, where: str, student: Outline, teacher: Outline) -> None:
        divides(where, student, teacher)
        equal_heads(where, student, teacher, self.blocks(student.depth, teacher.depth))

    def build(self, width: int, embed: EmbedLayer) -> "AttentionScoresLayer":
        return AttentionScoresLayer()


class AttentionScoresLayer(LossLayer):
    """The sum over tokens; no weights."""

    def forward(self, hidden: Hidden, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        assert batch.teacher is not None
        seen, parts = pairs(batch), []
        share = seen / seen.sum(-1, keepdim=True).clamp(min=1)
        for mine, other in zip(of_kind(hidden, "scores"), of_kind(batch.teacher.hidden, "scores"), strict=True):
            gap = torch.where(seen, exact(mine) - exact(other), 0.0)
            parts.append((gap.square().mean(1, keepdim=True) * share).sum())
        return torch.stack(parts).sum(), {}


def pairs(batch: Batch) -> Tensor:
    """[B, 1, L, L] bool: token i sees token j, and is not padding."""
    return (visible(batch.token_info, batch.token_info) & (batch.token_info.document != PADDING)[:, :, None])[:, None]


def of_kind(hidden: Hidden, kind: str) -> list[Tensor]:
    """What attention kept of a kind, from the first block on."""
    names = [name for name in hidden.captured if name.startswith(f"{kind}.")]
    return [hidden.captured[name] for name in sorted(names, key=lambda name: int(name.rpartition(".")[2]))]


def equal_heads(where: str, student: Outline, teacher: Outline, blocks: tuple[int, ...]) -> None:
    """Refuse models whose heads cannot be compared; blocks: those of the teacher, for the student's last ones."""
    own = student.heads[-len(blocks) :]
    theirs = [teacher.heads[block] for block in blocks]
    for outline, heads in ((student, own), (teacher, theirs)):
        if None in heads:
            raise RecipeError(
                where,
                f"{outline.name} has layers without heads, or whose heads score some pairs alone",
                "scores of all pairs are compared",
                "remove it",
            )
    if list(own) != theirs:
        given = f"{own[-1]} heads, and {teacher.name} has {theirs[-1]}"
        todo = f"set encoder.stack.block.mixer.heads={theirs[-1]}"
        raise RecipeError(where, given, "heads are compared one by one", todo)
