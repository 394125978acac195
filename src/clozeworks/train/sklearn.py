"""A text classifier with the manners of scikit-learn: it goes into pipelines, searches and cross-validation."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from clozeworks.core.errors import InputError
from clozeworks.inference.features import list_texts
from clozeworks.inference.text_encoder import TextEncoder
from clozeworks.train.finetune.entry import finetune

try:
    from sklearn.base import BaseEstimator, ClassifierMixin  # pyright: ignore[reportMissingImports]
except ImportError:  # which the constructor says
    BaseEstimator, ClassifierMixin = None, None

BASES: tuple[Any, ...] = () if BaseEstimator is None else (ClassifierMixin, BaseEstimator)


class TextClassifier(*BASES):
    """Fine-tunes `model` (a run, a model or a Hugging Face directory) on texts and their classes.

    X is a sequence of texts, y one of classes of any type that sorts. `out` keeps the run; without one it is forgotten
    once the weights are read. All rows are learned from, unless `dev_share` keeps some to choose the best epoch by.
    """

    def __init__(
        self,
        model: str | Path = "",
        *,
        epochs: int | None = None,
        batch_size: int = 32,
        max_length: int | None = None,
        learning_rate: float | None = None,
        freeze: bool = False,
        features: str = "last",
        dev_share: float = 0.0,
        patience: int | None = None,
        random_state: Any = 0,
        out: str | Path | None = None,
    ):
        if BaseEstimator is None:
            todo = "pip install 'clozeworks[sklearn]'"
            raise InputError("TextClassifier", "no scikit-learn", "it is an estimator of scikit-learn's", todo)
        self.model = model
        self.epochs = epochs
        self.batch_size = batch_size
        self.max_length = max_length
        self.learning_rate = learning_rate
        self.freeze = freeze
        self.features = features
        self.dev_share = dev_share
        self.patience = patience
        self.random_state = random_state
        self.out = out

    def fit(self, X: Sequence[str], y: Sequence[Any]) -> "TextClassifier":
        """Fine-tune on texts X and their classes y."""
        from sklearn.utils import check_random_state  # pyright: ignore[reportMissingImports]
        from sklearn.utils.multiclass import check_classification_targets  # pyright: ignore[reportMissingImports]

        texts, classes = texts_of(X), np.asarray(y)
        check_classification_targets(classes)
        if len(texts) != len(classes):
            raise ValueError(f"X has {len(texts)} texts and y {len(classes)} classes; as many are needed")
        self.classes_, numbers = np.unique(classes, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"one class only, {self.classes_[0]!r}; two are needed")
        width = len(str(len(self.classes_)))  # so that labels sort as the classes do
        rows = [{"text": text, "label": f"{number:0{width}}"} for text, number in zip(texts, numbers, strict=True)]
        seed = self.random_state
        if not isinstance(seed, int | np.integer):  # None or a generator, as elsewhere in scikit-learn
            seed = check_random_state(seed).randint(2**31 - 1)
        changes = {
            "train.seed": str(seed),
            **({"train.learning_rate": str(self.learning_rate)} if self.learning_rate else {}),
        }
        names = ("epochs", "batch_size", "max_length", "freeze", "features", "dev_share", "patience")
        options: dict[str, Any] = {name: getattr(self, name) for name in names}
        if not str(self.model):
            raise InputError("TextClassifier", "no model", "a pretrained model is needed", "give model=DIRECTORY")
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "run" if self.out is None else self.out
            tuned = finetune("classify", self.model, rows, out=out, progress=False, changes=changes, **options)
            self.encoder_: TextEncoder = tuned.model
        return self

    def predict_proba(self, X: Sequence[str]) -> np.ndarray:
        """[n, classes], in the order of `classes_`."""
        from sklearn.utils.validation import check_is_fitted  # pyright: ignore[reportMissingImports]

        check_is_fitted(self)
        answers = self.encoder_.predict(texts_of(X))
        chances = [[*answer["scores"].values()] for answer in answers]
        return np.array(chances, np.float64).reshape(len(answers), len(self.classes_))

    def predict(self, X: Sequence[str]) -> np.ndarray:
        """[n]: the most likely class of each text."""
        best = self.predict_proba(X).argmax(1)
        return self.classes_[best]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        tags.input_tags.one_d_array = True
        return tags


def texts_of(given: Any) -> list[str]:
    """A list, an array or a column of texts."""
    texts = np.asarray(given, dtype=object)
    if texts.ndim != 1:
        raise ValueError(f"an array of {texts.ndim} dimensions; one of texts is needed")
    return list_texts([str(each) if isinstance(each, np.str_) else each for each in texts.tolist()])
