"""What a loss is asked for."""

from collections.abc import Iterable

import numpy as np

from clozeworks.core.batch import Batch


def collect_labels(batches: Iterable[Batch]) -> np.ndarray:
    """The tokens to predict, for a baseline."""
    return np.concatenate([batch.labels.numpy() for batch in batches if batch.labels is not None])
