"""Hide runs of a few whole words."""

from dataclasses import dataclass

import numpy as np

from clozeworks.core import counter_rng
from clozeworks.core.bounds import Count
from clozeworks.core.examples import RaggedBatch
from clozeworks.objectives.mask.fit import TOO_LARGE, fit
from clozeworks.objectives.mask.masking import Chosen, Masking, ordinary, spread
from clozeworks.objectives.mask.order import shuffled
from clozeworks.objectives.mask.units import Units, joined, words

AHEAD = 16  # proposals prepared together


@dataclass(slots=True)
class MaskNgrams(Masking):
    """Runs of n whole words, p(n) = (1/n) / (1 + 1/2 + ... + 1/longest) (Lan et al. 2019, 4.1).

    With `longest` = 3: 6/11, 3/11 and 2/11, 1.636 words in the mean. Every word is proposed once as a start, in random
    order, with an n of its own, cut at the end of the piece. Words are dropped from the end of a run until it fits what
    is left of the budget; a run that does not fit, or that meets a word already chosen, is skipped. Each token draws
    its own 80/10/10. Unlike the published code, a run never reaches over a [SEP]; and where every word is larger than
    the budget one of the smallest is predicted rather than none.
    """

    longest: Count = 3

    def choose(self, examples: RaggedBatch, keys: np.ndarray) -> Chosen:
        units = words(examples)
        budget = self.budget(examples, keys, ordinary(examples))
        order = shuffled(units.counts, counter_rng.fold(keys, "choose"))
        covered, used = self._cover(units, joined(units, examples.segment), order, budget, counter_rng.fold(keys, "n"))
        taken = np.flatnonzero(covered)
        rows = np.searchsorted(units.first, taken, side="right") - 1
        if (used[budget > 0] == 0).any():
            alone, owners = fit(units, order, np.where(used == 0, budget, 0))
            taken, rows = np.append(taken, alone), np.append(rows, owners)
        return spread(units, taken, rows)

    def _cover(
        self, units: Units, after: np.ndarray, order: np.ndarray, budget: np.ndarray, site: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """[units] bool: chosen; [examples]: their tokens. One proposal of every example at a time."""
        steps = np.arange(self.longest)[:, None]
        covered = np.zeros(len(units.at) + self.longest, dtype=bool)
        size = np.append(units.sizes, np.full(self.longest, TOO_LARGE))
        last = np.append(~after, np.ones(self.longest, dtype=bool))
        smallest = np.minimum.reduceat(units.sizes, units.first[:-1][units.counts > 0])
        least = np.full(len(budget), TOO_LARGE)
        least[units.counts > 0] = smallest
        left = budget.copy()
        for low in range(0, order.shape[1], AHEAD):
            rows = np.flatnonzero((left >= least) & (units.counts > low))
            if not len(rows):
                break
            start = order[rows, low : low + AHEAD]
            valid = start < units.counts[rows, None]
            start = np.where(valid, start, 0)
            wanted = self.lengths(counter_rng.uniform(site[rows, None], start))
            start = (units.first[rows, None] + start).T[:, None]  # [proposals, 1, rows]
            cells = start + steps
            here = size[cells]
            ended = np.zeros_like(here, dtype=bool)
            ended[:, 1:] = np.logical_or.accumulate(last[cells], axis=1)[:, :-1]
            total = np.cumsum(here, axis=1)
            total[ended | (steps >= np.where(valid, wanted, 0).T[:, None])] = TOO_LARGE
            room = left[rows]
            for proposal in range(len(cells)):
                fits = total[proposal] <= room
                fits &= ~np.logical_or.reduce(covered[cells[proposal]] & fits, axis=0)
                covered[cells[proposal][fits]] = True
                room -= np.add.reduce(here[proposal] * fits, axis=0)
                if not np.logical_or.reduce(room >= least[rows]):
                    break
            left[rows] = room
        return covered[: len(units.at)], budget - left

    def lengths(self, random: np.ndarray) -> np.ndarray:
        """Words of a run, from numbers in [0, 1)."""
        chances = np.cumsum(1 / np.arange(1, self.longest + 1))
        return np.searchsorted(chances, random * chances[-1], side="right") + 1
