"""How many rows there are of each class."""

from collections import Counter
from dataclasses import dataclass

from clozeworks.data.records.wording import pluralize
from clozeworks.data.tables.table import Table

LARGE = 0.8  # share of the largest class from which on accuracy says little
NONE = "-"  # what published sets of inference have for a label where annotators did not agree
FEW = 10  # rows, below which a class is hardly learned


@dataclass(slots=True)
class Balance:
    """Counts by class, the largest first; of the largest its share; and what a user should hear, in sentences."""

    counts: dict[str, int]
    share: float
    notes: list[str]


def balance(table: Table) -> Balance:
    """The classes of a table: labels, tags of tokens, which choice is right, or whether there is an answer."""
    counts: Counter[str] = Counter()
    for row in table.rows:
        if "label" in row:
            counts.update(row["label"] if isinstance(row["label"], list) else [row["label"]])
        elif "tags" in row:
            counts.update(row["tags"])
        elif "answers" in row:
            counts["answer" if row["answers"] else "no answer"] += 1
        elif "answer" in row:
            counts[f"choice {row['answer']}"] += 1
    ordered = dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
    share = max(counts.values(), default=0) / max(1, counts.total())
    return Balance(ordered, share, _notes(table, ordered, share))


def _notes(table: Table, counts: dict[str, int], share: float) -> list[str]:
    if not any(isinstance(row.get("label"), str) for row in table.rows):
        return []
    notes = []
    if share >= LARGE and len(counts) > 1:
        most = next(iter(counts))
        notes.append(f"{share:.0%} of the rows are {most}: who always says so is right as often; look at f1 or mcc")
    if NONE in counts and len(counts) > 2:
        rows = pluralize(counts[NONE], "row")
        notes.append(f"{rows} with the label {NONE!r}: people who did not agree? then remove them")
    few = [name for name, count in counts.items() if count < FEW <= len(table) // len(counts)]
    if few:
        names = ", ".join(few[:5]) + (f" and {len(few) - 5} more" if len(few) > 5 else "")
        notes.append(f"fewer than {FEW} rows of {names}: add some, or leave out the class")
    return notes
