"""Datasets of the package `datasets`, known by what they can do: the package itself is never imported."""

from collections.abc import Iterator, Mapping
from typing import Any

from clozeworks.data.records.source import Record

BATCH_ROWS = 256  # of a dataset read at once


def is_dataset(given: Any) -> bool:
    """Whether it is a dataset, in memory or streamed."""
    return all(hasattr(given, name) for name in ("column_names", "features", "select_columns", "iter"))


def read_dataset(dataset: Any) -> Iterator[Record]:
    """Its records, as plain Python values."""
    plain = dataset.with_format(None) if hasattr(dataset, "with_format") else dataset
    for batch in plain.iter(BATCH_ROWS):
        names = list(batch)
        for cells in zip(*batch.values(), strict=True):
            yield dict(zip(names, cells, strict=True))


def class_names(features: Mapping[str, Any]) -> dict[str, list[str]]:
    """Names of the classes that stand as integers, in a column or in its lists; of features as objects or as dicts."""
    classes = {}
    for name, feature in features.items():
        if isinstance(feature, list) and feature:
            feature = feature[0]
        names = _part(feature, "names") or _part(_part(feature, "feature"), "names")
        if names:
            classes[name] = list(names)
    return classes


def _part(feature: Any, name: str) -> Any:
    return feature.get(name) if isinstance(feature, dict) else getattr(feature, name, None)
