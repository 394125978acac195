"""Gradual unfreezing: layers that begin to learn one after another."""

from torch import nn

from clozeworks.optim.parameter_groups import count_blocks, layers_below


class GradualUnfreezing:
    """From the top, one more layer every so many steps (Howard & Ruder 2018, section 3.3): heads, last block, ...,
    embedding.

    A pure function of the step, so that a resumed run needs no state. What does not learn yet has no gradient, so it
    does not decay either and its moments begin when it does. A tensor that several layers share learns with the
    uppermost of them.
    """

    def __init__(self, model: nn.Module, every: int):
        self.every, depth = every, count_blocks(model)
        self.below: dict[nn.Parameter, int] = {}
        for name, parameter in model.named_parameters(remove_duplicate=False):
            if parameter.requires_grad:
                below = layers_below(name, depth)
                self.below[parameter] = min(below, self.below.get(parameter, below))

    def __call__(self, step: int) -> None:
        """Let learn what learns at a step, counted from 1."""
        deepest = (step - 1) // self.every
        for parameter, below in self.below.items():
            parameter.requires_grad_(below <= deepest)
