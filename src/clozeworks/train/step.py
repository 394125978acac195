"""What the training loop yields."""

from dataclasses import dataclass, field

from clozeworks.core.batch import Batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What one update did. The model and the optimizer are as this step left them until the next is asked for."""

    number: int  # from 1
    steps: int
    loss: float  # weighted sum of the losses, each a mean over the predictions of the whole step
    metrics: dict[str, float]  # every loss and metric by name
    learning_rate: float
    grad_norm: float  # before clipping
    tokens: int  # without padding
    examples: tuple[int, ...]  # of this process; of all where the step was skipped
    seconds: float
    cpu_seconds: float  # of all processes, taken to be alike
    waited: float  # seconds of them spent waiting for data
    skipped: bool = False  # nothing was changed
    reason: str = ""  # why not
    trouble: bool = False  # it lasts: no step follows until the caller has gone back, or asking for one raises
    batch: Batch | None = field(default=None, repr=False, compare=False)  # its first micro-batch, for a look at it

    @property
    def first(self) -> bool:
        return self.number == 1

    @property
    def last(self) -> bool:
        return self.number == self.steps

    def every(self, count: int) -> bool:
        """Whether this is one of each `count` steps."""
        return self.number % count == 0
