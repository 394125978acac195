"""Rows to learn from and rows to evaluate on: a share set aside, folds, and rows that are in both."""

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from clozeworks.core import counter_rng
from clozeworks.core.errors import InputError
from clozeworks.data.tables.table import Row, Table

READ = ("text", "text_a", "text_b", "tokens", "context", "question", "choices", "source")  # what a model is shown


def split_table(table: Table, share: float = 0.1, seed: int = 0) -> tuple[Table, Table]:
    """Train and dev: a share of the rows set aside by the seed, in the order of the file.

    Of each class the same share, but never its last row. Questions about one passage, and rows with the same text, stay
    together: no row to evaluate on was learned from.
    """
    if not 0 < share < 1:
        raise InputError("share", share, "a share between 0 and 1 is needed", "0.1 is usual")
    strata = _groups(table)
    left = Counter(label for row in table.rows for label in _labels_or_tags(row))
    aside = set()
    for stratum, quota in _quotas(strata, share).items():
        members = strata[stratum]
        order = counter_rng.permutation(len(members), counter_rng.fold(seed, "split", stratum))
        kept = 0
        for group in (members[at] for at in order[:-1].tolist()):  # the last of them stays to be learned from
            if kept >= quota:
                break
            gone = Counter(label for at in group for label in _labels_or_tags(table.rows[at]))
            if all(count < left[label] for label, count in gone.items()):  # and so does the last of each label
                left.subtract(gone)
                aside.update(group)
                kept += len(group)
    if not aside:
        if len(left) > 2 and len(left) == left.total():  # ids, or numbers, are no classes
            given, needed = f"{len(left):,} labels for {len(table):,} rows", "a label needs several rows to be learned"
            raise InputError(table.name, given, needed, "is it a score or an id? name another by --columns label=NAME")
        given = _count_groups(table, strata)
        raise InputError(table.name, given, "more are needed to set some aside", "give a file to evaluate on")
    return table.some([at for at in range(len(table)) if at not in aside]), table.some(sorted(aside))


def fold_table(table: Table, folds: int, seed: int = 0) -> list[list[int]]:
    """The rows of each fold of a cross-validation (Stone 1974), by the seed: every row is in one of them.

    Classes are spread over the folds alike (Kohavi 1995: stratified), and what `split_table` keeps together stays so:
    a group of rows goes to the fold that has the fewest of its class, of these to the smallest.
    """
    strata = _groups(table)
    if not 2 <= folds <= sum(map(len, strata.values())):
        given = f"{folds} folds of {_count_groups(table, strata)}"
        raise InputError(table.name, given, "two folds at least, and a row for each, are needed", "use fewer folds")
    sizes, parts = np.zeros(folds, int), [list[int]() for _ in range(folds)]
    for stratum in sorted(strata):
        members, own = strata[stratum], np.zeros(folds, int)
        order = counter_rng.permutation(len(members), counter_rng.fold(seed, "folds", stratum))
        for group in sorted((members[at] for at in order.tolist()), key=len, reverse=True):
            fold = int(np.lexsort((sizes, own))[0])
            parts[fold] += group
            own[fold] += len(group)
            sizes[fold] += len(group)
    return [sorted(part) for part in parts]


def fewer(table: Table, many: int, seed: int = 0) -> Table:
    """About so many of the rows, what is left when the others are put aside: of each class alike, some of every label,
    and the questions about one passage together."""
    if many >= len(table):
        return table
    try:
        return split_table(table, 1 - many / len(table), seed)[0]
    except InputError:  # all of them belong together
        return table


def _groups(table: Table) -> dict[str, list[list[int]]]:
    """By class, the rows that stay together: questions about one passage, and rows with the same text."""
    together = defaultdict(list)
    for at, row in enumerate(table.rows):
        together[row.get("context", "").strip() or _shown(row, READ)].append(at)
    groups, strata = list(together.values()), defaultdict(list)
    for group, stratum in zip(groups, _strata(table, [group[0] for group in groups]), strict=True):
        strata[stratum].append(group)
    return strata


def _count_groups(table: Table, strata: dict[str, list[list[int]]]) -> str:
    kind = "passage" if table.rows and "context" in table.rows[0] else "row"
    return f"{sum(map(len, strata.values()))} different {kind}(s)"


def _strata(table: Table, rows: list[int]) -> list[str]:
    """The class of each of the rows, which are divided alike; of several labels that which is rarest in the table."""
    counts = Counter(label for row in table.rows for label in _labels(row))
    return [min(_labels(table.rows[at]), key=lambda label: (counts[label], label), default="") for at in rows]


def _labels_or_tags(row: Row) -> set[str]:
    """The labels of a row, or the tags of its words."""
    return set(row.get("tags") or _labels(row))


def _labels(row: Row) -> list[str]:
    label = row.get("label", [])
    return label if isinstance(label, list) else [label]


def _quotas(strata: dict[str, list[list[int]]], share: float) -> dict[str, int]:
    """How many rows of each class are set aside: its share rounded down, and one more of those that lost most by it, up
    to the share of all rows."""
    sizes = {stratum: sum(map(len, groups)) for stratum, groups in strata.items()}
    quotas = {stratum: int(size * share) for stratum, size in sizes.items()}
    left = max(1, round(sum(sizes.values()) * share)) - sum(quotas.values())
    cut = sorted(
        (stratum for stratum in strata if len(strata[stratum]) > 1),
        key=lambda stratum: (quotas[stratum] - sizes[stratum] * share, -sizes[stratum], stratum),
    )
    for stratum in cut[:left]:
        quotas[stratum] += 1
    return quotas


def repeats(train: Table, dev: Table, columns: Sequence[str] = READ) -> list[str]:
    """A sentence about rows of dev that are in train too, by what a model is shown of them."""
    known = {_shown(row, columns) for row in train.rows}
    count = sum(_shown(row, columns) in known for row in dev.rows)
    if not count:
        return []
    where = f"{count:,} of the {len(dev):,} rows of {dev.name} {'is' if count == 1 else 'are'} in {train.name} too"
    return [f"{where}: metrics on them show what was memorised"]


def _shown(row: Row, columns: Sequence[str]) -> Hashable:
    return tuple(_fixed(row[name]) for name in columns if name in row)


def _fixed(value: Any) -> Hashable:
    return tuple(value) if isinstance(value, list) else value.strip()
