import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clozeworks.core import counter_rng, spec
from clozeworks.core.errors import InputError
from clozeworks.data.batches.rows import Source
from clozeworks.objectives.segments import Pairs
from tests.conftest import SHARED
from tests.toys import VOCABULARY, Text

pairs = st.lists(st.lists(st.integers(1, 60), min_size=2, max_size=2), min_size=1, max_size=20).map(Text)


@settings(deadline=None)
@given(pairs, st.integers(8, 130), st.data())
def test_an_example_is_source_and_target_each_within_its_room(text, length, data):
    target = data.draw(st.integers(4, length - 4))
    epoch = Source(text, Pairs(length=length, target_length=target), None, VOCABULARY, 0).epoch(0)
    lost = 0
    for n in range(len(epoch.plan)):
        example = epoch.examples(np.array([n]))
        begin, middle, end = text.sentences[2 * n : 2 * n + 3]
        source = text.tokens[begin:middle][: length - target - 1].tolist()
        goal = text.tokens[middle:end][: target - 2].tolist()
        assert example.tokens.tolist() == [*source, VOCABULARY.sep, VOCABULARY.cls, *goal, VOCABULARY.sep]
        assert example.segment.tolist() == [0] * (len(source) + 1) + [1] * (len(goal) + 2)
        assert int(example.fields["cut"][0]) == end - begin - len(source) - len(goal)
        lost += int(example.fields["cut"][0])
    assert len(epoch.plan) == len(text.documents) - 1
    notes = Pairs(length=length, target_length=target).notes(text)
    assert len(notes) == (lost > 0)
    assert all(f"lose {lost:,} tokens" in note for note in notes)


@pytest.mark.parametrize("documents", [[[5, 5], [5]], [[5, 5, 5]], [[5, 5], [4, 4], [3] * 7]])
def test_text_that_is_not_pairs_is_refused(documents):
    odd = next(n for n, document in enumerate(documents) if len(document) != 2)
    wanted = rf"document {odd + 1} has {len(documents[odd])} sentences; .*`clozeworks prepare pairs.jsonl --pairs en,de"
    with pytest.raises(InputError, match=wanted):
        Pairs(length=64, target_length=32).plan(Text(documents), counter_rng.fold(0))


@pytest.mark.parametrize("target", [1, 3, 61, 64])
def test_both_sides_need_room(target):
    with pytest.raises(InputError, match=r"target_length = .*4 to 60 of the 64 tokens.*use 32"):
        spec.check(Pairs(length=64, target_length=target), "segments")


@pytest.mark.skipif(not SHARED.is_dir(), reason="no real text beside the checkout")
def test_real_pairs_fit_their_room():
    lines = (SHARED / "multi30k_en_de" / "val.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    text = Text([[len(row["en"].split()), len(row["de"].split())] for row in rows])
    assert Pairs(length=128, target_length=64).notes(text) == []
    assert "pairs" in Pairs(length=32, target_length=16).notes(text)[0]
