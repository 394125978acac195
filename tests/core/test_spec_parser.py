"""Fields set from text: numbers, words, and parts as Python writes them."""

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clozeworks.core import spec
from clozeworks.core.errors import RecipeError
from clozeworks.objectives.objective import Segments
from clozeworks.recipes import recipe


@pytest.mark.parametrize(
    ("path", "text", "value"),
    [
        ("encoder.stack.depth", "3", 3),
        ("train.steps", "1e4", 10_000),
        ("train.learning_rate", "5e-4", 5e-4),
        ("train.learning_rate", "1", 1),
        ("train.schedule", "cosine", "cosine"),
        ("train.micro_tokens", "none", None),
        ("objective.losses.1.weight", "0.5", 0.5),
        ("encoder.stack.block.mixer.dropout", "0", 0),
        ("encoder.pooler", "null", None),
        ("train.phases", '[{"part": "Phase", "share": 1.0, "length": 64}]', None),
    ],
)
def test_set_path(path, text, value):
    r = recipe("bert_tiny")
    spec.set_path(r, path, text)
    target = r
    for name in path.split("."):
        target = dict(spec.children(target))[name]
    if path == "train.phases":
        assert target[0].length == 64
    else:
        assert target == value


@pytest.mark.parametrize(
    ("path", "text", "message"),
    [
        ("encoder.stack.dept", "3", "did you mean depth"),
        ("encodr.width", "3", "did you mean encoder"),
        ("encoder.width", "wide", "a value of type int is needed"),
        ("encoder.width", "2.5", "a value of type int is needed"),
        ("encoder.width", "true", "a value of type int is needed"),
        ("train.schedule", "liner", "'linear' or 'cosine'"),
        ("objective.losses.7.weight", "1", "has no field 7"),
    ],
)
def test_set_path_refuses(path, text, message):
    with pytest.raises(RecipeError, match=message):
        spec.set_path(recipe("bert_tiny"), path, text)


# The same part as Python and as JSON write it.
WRITTEN = [
    ("objective.corruption", "MaskSpans", {"part": "MaskSpans"}),
    ("objective.corruption", "MaskSpans()", {"part": "MaskSpans"}),
    (
        "objective.corruption",
        "MaskNgrams(rate=0.2, longest=4, copies=None)",
        {"part": "MaskNgrams", "rate": 0.2, "longest": 4},
    ),
    ("objective.segments", "DocSentences(length=512)", {"part": "DocSentences", "length": 512}),
    (
        "objective.corruption",
        "MaskTokens(rounding='random', replace=Replace(source=\"ordinary\", mask=0.5))",
        {"part": "MaskTokens", "rounding": "random", "replace": {"part": "Replace", "source": "ordinary", "mask": 0.5}},
    ),
    ("objective.losses", "(MaskedLM,)", [{"part": "MaskedLM"}]),
    (
        "objective.losses",
        "(MaskedLM(weight=2.0), SentenceRelation)",
        [{"part": "MaskedLM", "weight": 2.0}, {"part": "SentenceRelation"}],
    ),
    ("objective.losses", "[MaskedLM]", [{"part": "MaskedLM"}]),
    ("objective.losses.0", "MaskedLM(weight=3.0)", {"part": "MaskedLM", "weight": 3.0}),
    ("train.phases", "(Phase(share=1.0, length=64),)", [{"part": "Phase", "share": 1.0, "length": 64}]),
    ("objective.corruption", "None", None),
    ("objective.corruption", "MaskPhrases(stage=entity)", {"part": "MaskPhrases", "stage": "entity"}),
    ("objective.corruption", "MaskTokens (rounding=random, copies=none)", {"part": "MaskTokens", "rounding": "random"}),
    ("objective.losses", "[ MaskedLM( weight=2 ) ]", [{"part": "MaskedLM", "weight": 2}]),
]


@pytest.mark.parametrize(("path", "text", "data"), WRITTEN, ids=[text for _, text, _ in WRITTEN])
def test_set_path_to_a_part(path, text, data):
    r = recipe("bert_tiny")
    spec.set_path(r, path, text)
    target: object = r
    for name in path.split("."):
        target = dict(spec.children(target))[name]
    assert target == (spec.from_dict(data) if data is not None else None)
    assert r.name == "bert_tiny", "a name that looks like a part stays a word where a word is wanted"


def test_a_capital_does_not_make_a_word_a_part():
    r = recipe("bert_tiny")
    spec.set_path(r, "name", "MaskSpans")
    assert r.name == "MaskSpans"


@pytest.mark.parametrize(
    ("path", "text", "message"),
    [
        ("objective.corruption", "MaskSpan", r"^objective\.corruption = MaskSpan: .*did you mean MaskSpans"),
        ("objective.corruption", "MaskSpans(rat=0.1)", r"^objective\.corruption\.rat = 0\.1: .*did you mean rate"),
        (
            "objective.corruption",
            "MaskTokens(replace=Replace(sorce='corpus'))",
            r"^objective\.corruption\.replace\.sorce = 'corpus': .*did you mean source",
        ),
        (
            "objective.corruption",
            "MaskTokens(replace=Replce())",
            r"^objective\.corruption\.replace = Replce: .*did you mean Replace",
        ),
        ("objective.losses", "(MaskedLM, SentenceRelatio)", r"^objective\.losses\.1 = .*did you mean SentenceRelation"),
        ("objective.segments", "MaskSpans", "a value of type Segments is needed"),
        (
            "objective.corruption",
            "MaskTokkens",
            r"^objective\.corruption = MaskTokkens: .*did you mean MaskTokens( or \w+)*\?$",
        ),
        (
            "objective.corruption",
            "Xyz",
            "choose one of MaskNgrams, MaskPhrases, MaskSpans, MaskTokens, MaskWholeWords, Permute, Shift, Translate$",
        ),
        ("objective.corruption", "maskspans", "type Corruption or None is needed; did you mean MaskSpans"),
        ("objective.corruption", "Corruption", "no part of that name is known; choose one of MaskNgrams, "),
        ("objective.segments", "DocSentences(512)", r"given by name; write DocSentences\(length=512\)$"),
        ("objective.segments", "Stream(32, streams=2)", r"by name; write Stream\(length=32, streams=2\)$"),
        ("objective.segments", "Stream(streams=2, streams=3)", "each field is given once|repeated"),
        ("objective.segments", "Stream(**{})", r"Stream\(\*\*\.\.\.\): each field is given once, by its name"),
        (
            "objective.segments",
            "Stream(length=32",
            r"^objective\.segments = Stream\(length=32: .*never closed; close the b",
        ),
        ("objective.segments", "DocSentences(length=", "never closed; close the bracket"),
        ("objective.segments", "Stream(length=32))", "unmatched"),
        ("objective.segments", "Stream(length=1 < 2)", r"segments\.length = 1 < 2: a plain value is needed"),
        ("objective.segments", f"Stream(length={'-' * 100_000}1)", "it is too long or too deep"),
        ("objective.segments", "[" * 100_000, r"^objective\.segments = \[{60}: "),
        ("objective.segments", "(" * 5000, r"^objective\.segments = \({60}: "),
        (
            "objective.segments",
            "DocSentences(length=open('x'))",
            r"^objective\.segments\.length = open: no part of that",
        ),
        ("objective.losses", "MaskedLM", r"a list of Loss is needed; write \[MaskedLM\]$"),
        ("encoder.width.x", "3", r"encoder\.width has no field x; it is 128; set encoder\.width itself"),
        ("encoder..width", "3", "encoder has no field without a name; choose one of embed, "),
        ("objective.losses.0", "MaskSpans", "a value of type Loss is needed"),
        ("objective.losses.0", "3", "a value of type Loss is needed"),
        ("train.optimizer.betas.1", "wide", "a value of type float is needed"),
        ("objective.segments", "Doc.Sentences()", "a value of type Segments is needed"),
    ],
)
def test_set_path_refuses_a_part(path, text, message):
    with pytest.raises(RecipeError, match=message):
        spec.set_path(recipe("bert_tiny"), path, text)


def test_a_bare_word_is_no_number():
    r = recipe("bert_tiny")
    spec.set_path(r, "objective.corruption", "MaskTokens(rate=high)")
    with pytest.raises(RecipeError, match=r"corruption\.rate = 'high': a value of type float is needed"):
        spec.check(r, r.name)


@settings(deadline=None)
@given(st.text(max_size=40) | st.from_regex(r"[A-Z]\w{0,8}[(\[][ -~]{0,20}", fullmatch=True))
def test_any_text_is_a_part_or_refused(text):
    r = recipe("bert_tiny")
    with contextlib.suppress(RecipeError):
        spec.set_path(r, "objective.segments", text)
    assert isinstance(r.objective.segments, Segments)
