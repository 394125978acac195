"""What a task asks of the encoder that it is made for."""

from dataclasses import dataclass
from typing import Literal, Protocol

from clozeworks.nn.pooling import Pooling
from clozeworks.nn.stack import Stack
from clozeworks.objectives.objective import Objective
from clozeworks.tasks.template import InputTemplate


class EncoderShape(Protocol):
    """The width and the layers of an encoder."""

    @property
    def width(self) -> int: ...

    @property
    def stack(self) -> Stack: ...


class EncoderRecipe(Protocol):
    """A `Recipe`, as far as tasks know it."""

    @property
    def encoder(self) -> EncoderShape: ...

    @property
    def objective(self) -> Objective: ...

    @property
    def pooling(self) -> Pooling | None: ...

    @property
    def reading(self) -> Literal["full", "causal"]: ...

    @property
    def recurrent(self) -> bool: ...

    @property
    def brief(self) -> bool: ...

    @property
    def length(self) -> int: ...


@dataclass(frozen=True, slots=True)
class PretrainedEncoder:
    """What a task is put on: the encoder's recipe, and the input template of its pretraining.

    `pooled`: it has a pooler that was pretrained. `max_length` is already the template's, where one was asked for; the
    `architecture` is that of what generates.
    """

    recipe: EncoderRecipe
    template: InputTemplate
    pooled: bool = False
    max_length: int | None = None
    architecture: Literal["decoder", "prefix"] = "decoder"
