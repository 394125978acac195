"""Baselines that know nothing of pretraining: the majority class, and TF-IDF with logistic regression.

A classifier that does not beat them has learned nothing that counting words would not tell. Weights are TF-IDF with
sublinear term frequencies; C is chosen by cross-validation on training rows; rows to evaluate on are scored, no more.
Beside a model that is cross-validated, they learn from the same rows of each fold and are scored on all folds together.
"""

import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

from clozeworks.core.characters import is_han
from clozeworks.data.tables import fewer
from clozeworks.data.tables.table import Row, Table
from clozeworks.tasks.task import Task

ROWS, TOTAL = 20_000, 2_000_000  # rows and characters that TF-IDF learns from, about and at most
FOLDED = 4_000  # of them that C is chosen on
FEATURES = 100_000  # n-grams, the most frequent ones
RARE = 200  # rows from which n-grams that are seen once are left out
CHARACTERS = 2_000  # of a text that are read
FOLDS = 3
STRENGTHS = (1.0, 10.0, 100.0)  # C, the inverse of the regularization
WORD = r"[\u3400-\u9fff]|[^\W\u3400-\u9fff]+"  # a Chinese character is a word of its own
GRAMS = {"words": (1, 2), "characters": (2, 5)}
CHINESE = (1, 4)  # n-grams of characters where these are most of a text
Scores = dict[str, float]  # of each label


@dataclass(frozen=True, slots=True)
class Baselines:
    """The task's metric of each baseline by name, and what to say of them."""

    metrics: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def measure_baselines(task: Task, train: Table, test: Table) -> Baselines:
    """Of texts with one label each, pairs of texts joined; for tasks of any other kind there are none."""
    return measure_folds(task, [(train, test)])


def measure_folds(task: Task, folds: Iterable[tuple[Table, Table]]) -> Baselines:
    """The same over folds, each the rows to learn from and those to predict: all of these are scored together."""
    rows, predicted, notes = list[Row](), list[dict[str, list[str]]](), list[str]()
    for train, test in folds:
        if (labels := task.single_labels(train)) is None:
            return Baselines()
        majority = min(counts := Counter(labels), key=lambda label: (-counts[label], label))
        by_counting, more = _predict_counting(task, train, test)
        predicted.append({"majority": [majority] * len(test), **by_counting})
        rows, notes = rows + test.rows, notes + more
    names = [name for name in predicted[0] if all(name in fold for fold in predicted)]
    whole = Table("rows", rows)
    metrics = {name: _score(task, [label for fold in predicted for label in fold[name]], whole) for name in names}
    return Baselines(metrics, list(dict.fromkeys(notes)))


def _predict_counting(task: Task, train: Table, test: Table) -> tuple[dict[str, list[str]], list[str]]:
    """What TF-IDF with logistic regression predicts, and what to say of it."""
    scores, notes = score_counting(task, train, test)
    return {name: [likeliest(each) for each in rows] for name, rows in scores.items()}, notes


def score_counting(task: Task, train: Table, test: Table) -> tuple[dict[str, list[Scores]], list[str]]:
    """The probability of each label that TF-IDF with logistic regression gives the rows, by its name."""
    if find_spec("sklearn") is None:
        return {}, ["to compare with TF-IDF and logistic regression: pip install 'clozeworks[sklearn]'"]
    length = sum(map(len, _texts(task, train))) / len(train)
    some = fewer(train, min(ROWS, round(TOTAL / max(length, 1))))
    labels, scores = task.single_labels(some) or [], {}
    for unit in GRAMS:
        scored = score_tfidf(unit, _texts(task, some), labels, _texts(task, test))
        if scored is not None:
            scores[f"tfidf_{unit}"] = scored
    return scores, [f"TF-IDF learns from {len(some):,} of {len(train):,} rows"] if len(some) < len(train) else []


def predict_tfidf(unit: str, texts: list[str], labels: list[str], test: list[str]) -> list[str] | None:
    """The labels that logistic regression on n-grams of words or characters predicts; None where texts have none."""
    scores = score_tfidf(unit, texts, labels, test)
    return None if scores is None else [likeliest(each) for each in scores]


def likeliest(scores: Scores) -> str:
    return max(scores, key=scores.__getitem__)


def score_tfidf(unit: str, texts: list[str], labels: list[str], test: list[str]) -> list[Scores] | None:
    """The probability of each label."""
    from sklearn.exceptions import ConvergenceWarning  # pyright: ignore[reportMissingImports]
    from sklearn.feature_extraction.text import TfidfVectorizer  # pyright: ignore[reportMissingImports]

    grams = CHINESE if unit == "characters" and _is_chinese(texts) else GRAMS[unit]
    cut: Any = {"analyzer": "word", "token_pattern": WORD} if unit == "words" else {"analyzer": "char_wb"}
    vectorizer = TfidfVectorizer(
        **cut,
        ngram_range=grams,
        min_df=2 if len(texts) >= RARE else 1,
        max_features=FEATURES,
        sublinear_tf=True,
    )
    try:
        known = vectorizer.fit_transform(texts)
    except ValueError:  # an empty vocabulary
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = _regression(_choose_strength(known, labels), labels).fit(known, labels)
    chances = model.predict_proba(vectorizer.transform(test)).tolist()
    return [dict(zip(model.classes_.tolist(), row, strict=True)) for row in chances]


def _choose_strength(features: Any, labels: list[str]) -> float:
    """C by cross-validated accuracy on some of the training rows; the last one where a class has too few of them."""
    from sklearn.model_selection import StratifiedKFold, cross_val_score  # pyright: ignore[reportMissingImports]

    every = -(-len(labels) // FOLDED)
    features, labels = features[::every], labels[::every]
    folds = min(FOLDS, *Counter(labels).values())
    if folds < 2 or len(set(labels)) < 2:
        return STRENGTHS[-1]
    parts = StratifiedKFold(folds)
    scores = {
        strength: cross_val_score(_regression(strength, labels), features, labels, cv=parts).mean()
        for strength in STRENGTHS
    }
    return max(scores, key=scores.__getitem__)  # of equals the most regularized


def _regression(strength: float, labels: Sequence[str]) -> Any:
    """Logistic regression; of two classes by liblinear's dual, ten times as quick for so many features."""
    from sklearn.linear_model import LogisticRegression  # pyright: ignore[reportMissingImports]

    if len(set(labels)) > 2:
        return LogisticRegression(C=strength)
    return LogisticRegression(C=strength, solver="liblinear", dual=True, random_state=0)


def _score(task: Task, predicted: Sequence[str], test: Table) -> float:
    return task.score([{"label": label} for label in predicted], test)[task.metric]


def _texts(task: Task, table: Table) -> list[str]:
    return ["\n".join(str(row[name])[:CHARACTERS] for name in task.columns) for row in table.rows]


def _is_chinese(texts: list[str]) -> bool:
    letters = [character for text in texts[:100] for character in text[:500] if character.isalpha()]
    return 2 * sum(map(is_han, letters)) > len(letters)
