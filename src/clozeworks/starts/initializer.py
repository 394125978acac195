"""How fresh weights begin otherwise than at random: parts of a recipe (`Recipe.start`)."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from clozeworks.core.errors import InputError, suggest
from clozeworks.core.spec import Spec, known_parts
from clozeworks.data.shards.corpus import Corpus
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.model import Model
from clozeworks.nn.architecture import Architecture
from clozeworks.objectives.objective import Objective


@dataclass(frozen=True, slots=True)
class TeacherVectors:
    """A teacher as weights may begin from it: its sentence vectors [n, D] of texts, and the SHA-256 of its weights."""

    encode: Callable[[list[str]], np.ndarray]
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fresh:
    """A model that has just been drawn, and what its weights may begin from."""

    model: Model
    objective: Objective
    deviation: float  # of its weights
    seed: int
    corpora: Sequence[tuple[Corpus, float]] = ()  # the text of the run with its weights, where there is some
    tokenizer: Tokenizer | None = None  # of that text
    teacher: TeacherVectors | None = None


@dataclass(slots=True)
class Initializer(Spec):
    """Base of what changes fresh weights before the first step, and nothing afterwards."""

    option: ClassVar[str]  # its name on the command line
    reads_text: ClassVar[bool] = False  # whether it can only begin a run, which has text
    reads_teacher: ClassVar[bool] = False  # whether that run must have a teacher, too

    def check_model(self, where: str, model: Architecture, objective: Objective) -> None:
        """Raise `RecipeError` if a model or an objective has no place for it."""

    @abstractmethod
    def begin(self, fresh: Fresh) -> list[str]:
        """Change the weights in place; returns what to report."""


def write_initializers(names: str) -> str:
    """Names on the command line, with commas, as a value of `Recipe.start`: [NeighbourInit, CountedTable]."""
    known = {part.option: name for name, part in known_parts().items() if issubclass(part, Initializer)}
    given = [] if names == "none" else [name.strip() for name in names.split(",")]
    for name in given:
        if name not in known:
            needed = f"one of {', '.join(sorted(known))} or none is needed"
            raise InputError("--start", name or "nothing", needed, suggest(name, known))
    return f"[{', '.join(known[name] for name in dict.fromkeys(given))}]"
