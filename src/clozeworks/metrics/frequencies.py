"""The unigram baseline: what word frequencies alone predict."""

import numpy as np


def unigram_baseline(train_counts: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """What a model without context reaches: the add-one-smoothed frequencies of training as a guess for each label."""
    chances = smoothed_frequencies(train_counts)
    return {
        "unigram_loss": float(-np.log(chances)[labels].mean()),
        "unigram_accuracy": float((labels == chances.argmax()).mean()),
    }


def smoothed_frequencies(counts: np.ndarray) -> np.ndarray:
    """Frequencies that sum to 1, one added to each count: no word is impossible."""
    smoothed = counts.astype(np.float64) + 1
    return smoothed / smoothed.sum()
