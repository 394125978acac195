"""What is predicted in a random order, and the rows it is made for, counted."""

import numpy as np

from clozeworks.core import counter_rng
from clozeworks.core.examples import NOTHING
from clozeworks.objectives.mask.units import words
from clozeworks.objectives.permute import Permute
from clozeworks.objectives.segments import PairStream
from studies.conformance.material import Material
from studies.conformance.results import Group, Result, exact, mean, share

DRAWN = 200_000  # lengths drawn without a text
LENGTH, REUSE = 512, 256


def order_groups(material: Material) -> list[Group]:
    return [_targets(material), _rows(material)]


def _targets(material: Material) -> Group:
    numbers = counter_rng.bits(counter_rng.fold(material.seed, "conformance"), np.arange(DRAWN)) >> np.uint64(32)
    drawn = Permute().sizes(numbers)
    chance = 1 / np.arange(1, 6)
    chance /= chance.sum()
    results: list[Result] = [
        share(f"Permute, drawn: {n} word{'s' * (n > 1)}", f"{p:.3f}", "XLNet code", drawn == n, float(p))
        for n, p in enumerate(chance, 1)
    ]
    results.append(mean("Permute, drawn: mean words", "2.190", "XLNet code", drawn, float(chance @ np.arange(1, 6))))
    examples = material.masked(PairStream(LENGTH, reuse=REUSE, streams=2), Permute())
    target = examples.labels != NOTHING
    assert examples.order is not None
    many, count = len(examples), target.reshape(-1, LENGTH).sum(axis=1)
    units = words(examples)
    before = np.append(0, np.cumsum(target))
    inside = before[units.at + units.sizes] - before[units.at]
    touched = inside > 0
    order, reused = examples.order.reshape(-1, LENGTH), examples.fields["reused"]
    first = np.arange(LENGTH) < reused[:, None]
    lowest = np.where(first, np.iinfo(np.int32).max, order).min(axis=1)
    leaks = int((np.where(first, order, -1).max(axis=1) >= lowest).sum())
    results += [
        exact("Permute: predictions of 512 tokens (a share of .166)", "85", "XLNet 3.1", count, 85, many),
        exact("Permute: special tokens predicted", "0", "XLNet code", int((target & examples.special).sum()), 0, many),
        exact("Permute: rows whose reused tokens see others", "0", "XLNet code", leaks, 0, many),
        share("Permute: words predicted in part", "", "", (inside < units.sizes)[touched], None),
    ]
    return Group(
        "Targets in an order: Permute",
        "Lengths as they are drawn; then rows of 512 tokens, of which 256 are reused. Words are predicted in part "
        "where the number is met within a span, or single tokens fill up to it.",
        results,
    )


def _rows(material: Material) -> Group:
    segments = PairStream(LENGTH, reuse=REUSE, streams=8)
    epoch = material.source(segments, None).epoch(0)
    examples = epoch.examples(np.arange(len(epoch.plan)))
    short = int((examples.lengths != LENGTH).sum())
    first = examples.position < np.repeat(examples.fields["reused"], examples.lengths)
    backward = np.repeat(examples.fields["backward"], examples.lengths)
    text = material.text
    tokens, documents = int(text.sentences[-1]), len(np.unique(text.sentences[text.documents])) - 1
    missed = [tokens + documents - int((first & (backward == way)).sum()) for way in (False, True)]
    unclosed = int((examples.segment[examples.first[1:] - 1] != 2).sum())
    return Group(
        "Rows in two directions: PairStream",
        "Rows of 512 tokens that continue after 256, in 8 streams, half of them backward.",
        [
            exact("PairStream: rows that are not full", "0", "XLNet code", short, 0, len(examples)),
            exact("PairStream: tokens not reused once, forward", "0", "XLNet code", missed[0], 0, tokens),
            exact("PairStream: tokens not reused once, backward", "0", "XLNet code", missed[1], 0, tokens),
            exact("PairStream: rows without [CLS] last", "0", "XLNet code", unclosed, 0, len(examples)),
            share(
                "PairStream: B from elsewhere", "1/2 or more", "XLNet code", examples.fields["pair_label"] == 1, None
            ),
        ],
    )
