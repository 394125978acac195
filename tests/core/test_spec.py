import json
import subprocess
import sys
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clozeworks.core import spec
from clozeworks.core.errors import RecipeError
from clozeworks.core.spec import Spec
from clozeworks.nn.mixers.attention import Attention
from clozeworks.nn.mixers.split import Split
from clozeworks.nn.stack import Stack
from clozeworks.recipes import named, recipe


@dataclass(slots=True)
class Leaf(Spec):
    size: int = 1
    rate: float = 0.5
    mode: Literal["a", "b"] = "a"
    maybe: int | None = None


@dataclass(slots=True)
class Tree(Spec):
    name: str
    leaf: Leaf = field(default_factory=Leaf)
    leaves: tuple[Leaf, ...] = ()


leaves = st.builds(
    Leaf,
    size=st.integers(),
    rate=st.floats(allow_nan=False, allow_infinity=False),
    mode=st.sampled_from(["a", "b"]),
    maybe=st.none() | st.integers(),
)
trees = st.builds(Tree, name=st.text(), leaf=leaves, leaves=st.lists(leaves, max_size=3).map(tuple))


@given(trees)
def test_json_goes_there_and_back(tree):
    assert spec.from_dict(spec.to_dict(tree), parts=[Leaf, Tree]) == tree


@given(trees, trees)
def test_a_diff_is_empty_exactly_when_equal(a, b):
    assert (spec.diff(a, b) == {}) == (a == b)


@pytest.mark.parametrize("name", named())
def test_every_recipe_is_fresh_sound_and_survives_json(name):
    first, second = recipe(name), recipe(name)
    spec.check(first, name)
    assert spec.from_dict(spec.to_dict(first)) == first == second
    first.encoder.stack.depth += 1
    first.encoder.embed.dropout = 0.123
    assert second == recipe(name), "two calls share a part"
    assert set(spec.diff(first, second)) == {"encoder.stack.depth", "encoder.embed.dropout"}


def test_a_misspelt_field_raises_with_a_suggestion():
    with pytest.raises(AttributeError, match="did you mean heads"):
        Attention(4).haeds = 3  # pyright: ignore[reportAttributeAccessIssue]


def test_diff_reports_another_class_whole():
    changes = spec.diff(Tree("x", Leaf(2)), Tree("y", Leaf(2), (Leaf(3),)))
    assert changes == {"name": ("x", "y"), "leaves": ((), (Leaf(3),))}


def test_an_unknown_part_is_named():
    data = spec.to_dict(recipe("bert_tiny"))
    data["encoder"]["stack"]["block"]["mixer"]["part"] = "Atention"
    with pytest.raises(RecipeError, match=r"recipe\.encoder\.stack\.block\.mixer = Atention: .*did you mean Attention"):
        spec.from_dict(data)
    with pytest.raises(RecipeError, match=r"parts=\[\.\.\.\]"):  # a file may name its owner's class, --set may not
        spec.from_dict(data)
    with pytest.raises(RecipeError) as error:
        spec.set_path(recipe("bert_tiny"), "encoder.stack.block.mixer", "Atention")
    assert "parts=" not in str(error.value)


def test_no_file_chooses_a_class_of_the_callers():
    data = {"part": "Leaf", "size": 3}
    with pytest.raises(RecipeError, match="parts="):
        spec.from_dict(data)
    assert spec.from_dict(data, parts=[Leaf]) == Leaf(3)


def test_an_unknown_field_in_a_file_is_named():
    data = spec.to_dict(recipe("bert_tiny"))
    data["encoder"]["widht"] = 3
    with pytest.raises(RecipeError, match=r"recipe\.encoder\.widht = 3: .*did you mean width"):
        spec.from_dict(data)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("encoder.stack.depth", -1, r"bert_tiny\.encoder\.stack\.depth = -1: 0 or more is needed"),
        ("encoder.stack.depth", 10**9, r"encoder\.stack\.depth = 1000000000: at most 10,000 is needed"),
        ("encoder.stack.block.mixer.heads", 5, r"heads = 5: width 128 is not divisible by it; use 2 or 4 or 8"),
        ("encoder.stack.share.attention", 5, r"share\.attention = 5: depth 2 is not divisible by it; use 1 or 2"),
        ("encoder.stack.block.mixer.dropout", 1.0, r"dropout = 1\.0: a number in \[0, 1\)"),
        ("objective.corruption.rate", 1.5, r"a number in \(0, 1\)"),
        ("encoder.pooler", None, r"encoder\.pooler = None: a loss reads the pooled vector; use Pooler\(\)"),
        ("encoder.embed.positions.length", 64, "examples are up to 128 tokens long; use at least 128"),
        ("train.batch_tokens", 100, "one row is 128 tokens long"),
        ("encoder.width", "wide", r"encoder\.width = 'wide': a value of type int"),
        ("encoder.width", 10**30, r"encoder\.width = 1000+: at most 131,072 is needed"),
        ("encoder.vocab", 0, r"encoder\.vocab = 0: 1 or more"),
        ("objective.losses", "MaskedLM", "a list of Loss"),
    ],
)
def test_check_refuses_before_anything_is_built(path, value, message):
    r = recipe("bert_tiny")
    *parents, last = path.split(".")
    target = r
    for name in parents:
        target = getattr(target, name)
    object.__setattr__(target, last, value)
    with pytest.raises(RecipeError, match=message):
        spec.check(r, r.name)


def test_depth_twelve_shared_by_five_names_every_way_out():
    r = recipe("bert_base")
    r.encoder.stack.share.attention = 5
    with pytest.raises(RecipeError) as error:
        spec.check(r, r.name)
    wanted = "bert_base.encoder.stack.share.attention = 5: depth 12 is not divisible by it; use 1, 2, 3, 4, 6 or 12"
    assert str(error.value) == wanted


def test_two_streams_and_an_order_go_together():
    from clozeworks.objectives.permute import Permute

    @dataclass(slots=True)
    class TwoStreams(Stack):
        streams: ClassVar[int] = 2

    r = recipe("roberta_mini")
    masks, r.objective.corruption = r.objective.corruption, Permute()
    with pytest.raises(RecipeError, match=r"objective\.corruption = Permute: its rows hold the answers.*one stream"):
        spec.check(r, r.name)
    r.encoder.stack = TwoStreams(r.encoder.stack.depth, r.encoder.stack.block)
    spec.check(r, r.name)
    for other in (masks, None):
        r.objective.corruption = other
        r.objective.losses = r.objective.losses if other else ()
        with pytest.raises(RecipeError, match=r"encoder\.stack = TwoStreams: .*order.*; use corruption=Permute\(\)"):
            spec.check(r, r.name)


def test_a_loss_that_reads_what_nothing_writes_is_refused():
    from clozeworks.objectives.losses.sentence_relation import SentenceRelation

    r = recipe("roberta_mini")
    r.objective.losses = (*r.objective.losses, SentenceRelation())
    with pytest.raises(
        RecipeError, match=r"losses\.1 = SentenceRelation: it reads pair_label, which nothing writes.*SegmentPair"
    ):
        spec.check(r, r.name)


ALONE = """
import importlib, json, pkgutil
from pathlib import Path
import clozeworks
from clozeworks.core import spec
from clozeworks.recipes import recipe

made = recipe("bert_tiny")
spec.set_path(made, "encoder.stack.block.mixer.bias", "Shaw")
assert type(made.encoder.stack.block.mixer.bias).__name__ == "Shaw"
assert spec.from_dict(json.loads(json.dumps(spec.to_dict(made)))) == made

known = set(spec.known_parts())
for module in pkgutil.walk_packages([str(Path(clozeworks.__file__).parent)], "clozeworks."):
    if not module.name.endswith(("__main__", "unpickle")):
        importlib.import_module(module.name)
assert known == set(spec.known_parts()), known ^ set(spec.known_parts())
"""


def test_every_part_is_known_by_its_name_whatever_was_imported():
    subprocess.run([sys.executable, "-c", ALONE], check=True)


FILE = """
import json, sys
from clozeworks.core import spec

print(type(spec.from_dict(json.load(sys.stdin))).__name__)
"""


def test_a_file_is_read_where_nothing_but_the_reader_was_imported():
    given = json.dumps({"part": "Shaw", "reach": 4})
    done = subprocess.run([sys.executable, "-c", FILE], input=given, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "Shaw"


def test_a_part_says_what_is_wrong_with_it_before_others_do():
    r = recipe("lite_transformer_mini")
    block = r.encoder.stack.block_at(0)
    block.mixer = Split((Attention(2), Attention(2)), widths=(16, 16, 16))
    with pytest.raises(
        RecipeError, match=r"mixer\.widths = \[16, 16, 16\]: a width of 1 or more is needed for each of 2"
    ):
        spec.check(r, r.name)
