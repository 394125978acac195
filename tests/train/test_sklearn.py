"""The classifier among scikit-learn's: their own checks as far as they need no numbers, and the things people do."""

# pyright: reportMissingImports=false

import pickle
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import clozeworks as cw
from tests.labelled import rows

pytestmark = pytest.mark.skipif(find_spec("sklearn") is None, reason="scikit-learn is not installed")
# Their other checks fit arrays of numbers, which are no texts: scikit-learn itself leaves them out for such estimators.
CHECKS = [
    "check_estimator_cloneable",
    "check_estimator_repr",
    "check_get_params_invariance",
    "check_mixin_order",
    "check_no_attributes_set_in_init",
    "check_parameters_default_constructible",
    "check_set_params",
    "check_valid_tag_types",
]


@pytest.mark.parametrize("name", CHECKS)
def test_their_checks(name: str):
    from sklearn.utils import estimator_checks

    getattr(estimator_checks, name)("TextClassifier", cw.TextClassifier())


@pytest.mark.filterwarnings("ignore:Can't test estimator")
def test_all_that_they_try_on_an_estimator_of_texts():
    from sklearn.utils.estimator_checks import check_estimator

    check_estimator(cw.TextClassifier())


def data(count: int = 64, seed: int = 0) -> tuple[list[str], list[str]]:
    result = rows(count, seed)
    return [row["text"] for row in result], [row["label"] for row in result]


def made(road: Path, **more: object) -> "cw.TextClassifier":
    how = {"epochs": 6, "batch_size": 8, "max_length": 16, "learning_rate": 3e-3, **more}
    return cw.TextClassifier(road / "run", **how)


@pytest.fixture(scope="module")
def fitted(road: Path) -> "cw.TextClassifier":
    return made(road).fit(*data())


def test_it_predicts(fitted: "cw.TextClassifier"):
    texts, classes = data(24, 1)
    chances = fitted.predict_proba(texts)
    assert chances.shape == (24, 2)
    np.testing.assert_allclose(chances.sum(1), 1, atol=1e-6)
    assert [*fitted.classes_] == ["cold", "warm"]
    assert fitted.score(texts, classes) >= 0.8
    assert (fitted.predict(np.array(texts)) == fitted.classes_[chances.argmax(1)]).all()
    assert fitted.predict([]).shape == (0,)


def test_the_same_seed_gives_the_same_and_another_does_not(road: Path):
    texts = data(8, 2)[0]
    one, two, other = (
        made(road, epochs=1, random_state=seed).fit(*data(16)).predict_proba(texts) for seed in (0, 0, 1)
    )
    assert (one == two).all()
    assert (one != other).any()


def test_seeds_as_elsewhere_in_scikit_learn(road: Path):
    texts, classes = data()
    made = [cw.TextClassifier(road / "run", epochs=1, random_state=np.random.RandomState(3)) for _ in range(2)]
    one, other = (each.fit(texts, classes).predict_proba(texts[:4]) for each in made)
    np.testing.assert_array_equal(one, other)
    fresh = cw.TextClassifier(road / "run", epochs=1, random_state=None).fit(texts, classes)
    assert not np.array_equal(one, fresh.predict_proba(texts[:4]))


def test_it_survives_a_copy(fitted: "cw.TextClassifier"):
    texts = data(8, 2)[0]
    copied = pickle.loads(pickle.dumps(fitted))
    assert (copied.predict_proba(texts) == fitted.predict_proba(texts)).all()


def test_classes_of_any_type_keep_their_order(road: Path):
    texts = [f"the {word}" for word in ("fox", "hen", "tree", "stone") * 3]
    for classes in (list(range(-1, 11)), [True, False] * 6, np.arange(12) * 1.0):
        result = made(road, epochs=1).fit(texts, classes)
        assert result.classes_.tolist() == sorted(set(np.asarray(classes).tolist()))
        assert result.predict(texts).dtype == np.asarray(classes).dtype


def test_it_goes_into_a_search_and_a_pipeline(road: Path):
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer

    lower = FunctionTransformer(lambda texts: [text.lower() for text in texts])
    whole = make_pipeline(lower, made(road, epochs=1))
    search = GridSearchCV(whole, {"textclassifier__learning_rate": [1e-3, 3e-3]}, cv=2)
    search.fit(np.array(data(16)[0]), data(16)[1])
    assert search.best_params_["textclassifier__learning_rate"] in (1e-3, 3e-3)


def test_mistakes(road: Path):
    from sklearn.exceptions import NotFittedError

    with pytest.raises(NotFittedError):
        made(road).predict(["the"])
    with pytest.raises(cw.InputError, match="a pretrained model is needed"):
        cw.TextClassifier().fit(*data(8))
    for texts, classes, message in (
        (["a", "b"], [0], "2 texts and y 1 classes"),
        (["a", "b"], [1, 1], "one class only"),
        ([["a"], ["b"]], [0, 1], "2 dimensions"),
        (["a", "b"], [0.5, 1.7], "Unknown label type"),
    ):
        with pytest.raises(ValueError, match=message):
            made(road).fit(texts, classes)
    with pytest.raises(cw.InputError, match="a string is needed"):
        made(road).fit([1, 2], [0, 1])
