"""The spike guard of a run, as a recipe says it."""

from dataclasses import dataclass
from typing import Annotated

from clozeworks.core.bounds import LARGEST, Bound, Count, Natural, Positive
from clozeworks.core.spec import Spec

PATIENCE = 10  # steps in a row that may be skipped where a recipe has no guard


@dataclass(slots=True)
class Guard(Spec):
    """Skips a step whose loss is far above the last ones, and goes back where skipping does not help.

    With median m and median absolute deviation d of the last `window` losses a step is a spike if

        loss > m + max(deviations * 1.4826 d, rise)

    and then, as where something is not finite, no update is made. Nothing is a spike before `window` losses are
    there, anew at each length phase. After `patience` bad steps in a row (after a spike, half of the way to the limit
    is bad, too) the run returns to a checkpoint before the trouble and passes over the steps from `patience` before it
    to here. Trouble that comes again within `window` steps is the same one: twice as many steps before it are passed
    over, and after `rollbacks` times the run stops. A `rise` is in the unit of the loss: nats a prediction.

    Chowdhery et al. 2022 (section 5.1) went back by hand, about 100 steps, and left out 200 to 500 batches.
    """

    window: Annotated[int, Bound(4, LARGEST)] = 100
    deviations: Positive = 10.0
    rise: Positive = 1.0
    patience: Count = PATIENCE
    rollbacks: Natural = 3
