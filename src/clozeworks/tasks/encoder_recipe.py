"""What a task asks of the recipe of an encoder that it is made for."""

from typing import Literal, Protocol

from clozeworks.nn.pooling import Pooling
from clozeworks.nn.stack import Stack
from clozeworks.objectives.objective import Objective


class EncoderShape(Protocol):
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
    def length(self) -> int: ...
