"""What a student takes over from its teacher before it learns from it."""

from dataclasses import dataclass
from typing import Literal

from clozeworks.core.bounds import Natural
from clozeworks.core.errors import RecipeError
from clozeworks.core.spec import Spec
from clozeworks.nn.architecture import Architecture
from clozeworks.nn.positions import LearnedPositions


@dataclass(slots=True)
class Distil(Spec):
    """Start from the teacher's layers (Sanh et al. 2019, 3): its tables, its norm, its masked-LM head and blocks of it.

    `start` names the block of the teacher for each of the student's, from 0; "spread" takes them at equal distances
    from the first to the last, 0, 2, 4, 7, 9, 11 for 6 of 12; None begins with fresh weights, as other widths must.
    `freeze_positions` leaves the position table as it is then.
    """

    start: Literal["spread"] | tuple[Natural, ...] | None = "spread"
    freeze_positions: bool = False

    def check_model(self, where: str, model: Architecture) -> None:
        """Raise `RecipeError` if a student of this kind has not what is taken over."""
        if self.freeze_positions and not isinstance(model.embed.positions, LearnedPositions):
            raise RecipeError(f"{where}.freeze_positions", True, "there is no table of positions", "use false")
        if self.start is not None and model.decoder is not None:
            needed = "layers of a teacher are taken for an encoder alone"
            raise RecipeError(f"{where}.start", self.start, needed, "use None")
        if isinstance(self.start, tuple) and len(self.start) != model.stack.depth:
            needed = f"one layer of the teacher for each of {model.stack.depth} is needed"
            raise RecipeError(f"{where}.start", list(self.start), needed, 'use "spread"')

    def layers(self, depth: int, of: int) -> tuple[int, ...]:
        """The block of the teacher, which has `of`, for each block of a student."""
        return self.start if isinstance(self.start, tuple) else spread(depth, of)


def spread(depth: int, of: int) -> tuple[int, ...]:
    """So many of 0 ... of - 1, the first and the last among them: i (of - 1) / (depth - 1), rounded, halves up."""
    gaps = max(depth - 1, 1)
    return tuple((2 * layer * (of - 1) + gaps) // (2 * gaps) for layer in range(depth))
