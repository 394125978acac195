"""Rows that continue where the reused tokens of the last ones ended, forward and backward."""

import dataclasses

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from clozeworks.core import counter_rng, spec
from clozeworks.core.errors import InputError, RecipeError
from clozeworks.core.examples import PHRASE_INSIDE, PHRASE_START, Columns, ExamplePlan, RaggedBatch, assemble
from clozeworks.data.batches.loader import Loader
from clozeworks.data.batches.rows import Source
from clozeworks.nn.positions import AxialPositions, LearnedPositions, SinusoidalPositions
from clozeworks.objectives.permute import Permute
from clozeworks.objectives.segments import PairStream
from clozeworks.recipes import recipe
from tests.objectives.test_stream import documents, stream_of
from tests.toys import VOCABULARY, Text

CLS, SEP = VOCABULARY.cls, VOCABULARY.sep


def distinct(documents: list[list[int]]) -> Text:
    """A text in which no token comes twice."""
    text = Text(documents)
    text.tokens = np.arange(5, 5 + len(text.tokens), dtype=np.int32)
    return text


def read(text: Text, segments: PairStream, seed: int = 0) -> RaggedBatch:
    epoch = Source(text, segments, None, VOCABULARY, seed).epoch(0)
    return epoch.examples(np.arange(len(epoch.plan)), sentences=True)


def rows_of(examples: RaggedBatch, column: np.ndarray) -> list[list[int]]:
    return [each.tolist() for each in np.split(column, examples.first[1:-1])]


@st.composite
def streams(draw) -> tuple[Text, PairStream]:
    length, both = draw(st.integers(8, 40)), draw(st.booleans())
    streams = draw(st.integers(1, 3)) * (1 + both)
    segments = PairStream(length, streams=streams, reuse=draw(st.integers(2, length - 5)), both=both)
    text = distinct(draw(documents))
    assume(len(stream_of(text)) >= 2 * length)
    return text, segments


@settings(deadline=None, max_examples=100)
@given(streams(), st.integers(0, 3))
def test_every_token_of_a_lane_is_reused_once(made, seed):
    text, segments = made
    examples = read(text, segments, seed)
    streams, line = segments.streams, stream_of(text)
    assert set(examples.lengths.tolist()) == {segments.length}
    assert examples.fields["stream"].tolist() == [n % streams for n in range(len(examples))]
    assert examples.fields["continues"].tolist() == [n >= streams for n in range(len(examples))]
    tokens, heads = rows_of(examples, examples.tokens), examples.fields["reused"].tolist()
    stream = [
        [token for n in range(which, len(examples), streams) for token in tokens[n][: heads[n]]]
        for which in range(streams)
    ]
    ways = streams // (1 + segments.both)
    assert [token for each in stream[:ways] for token in each] == line
    if segments.both:
        assert [token for each in stream[ways:] for token in each] == line[::-1]
        assert examples.fields["backward"].tolist() == [n % streams >= ways for n in range(len(examples))]
    else:
        assert "backward" not in examples.fields
    assert max(heads) <= segments.reuse
    assert set(heads[: -2 * streams]) <= {segments.reuse}


@settings(deadline=None, max_examples=100)
@given(streams(), st.integers(0, 3))
def test_a_row_is_reused_text_and_two_segments(made, seed):
    text, segments = made
    examples = read(text, segments, seed)
    line, length = stream_of(text), segments.length
    begins = set(text.tokens[text.sentences[:-1][np.diff(text.sentences) > 0]].tolist())
    lasts = set(text.tokens[text.sentences[1:][np.diff(text.sentences) > 0] - 1].tolist())
    columns = (examples.tokens, examples.segment, examples.special, examples.sentence_starts, examples.word_starts)
    for n, (tokens, segment, special, sentences, words) in enumerate(
        zip(*(rows_of(examples, column) for column in columns), strict=True)  # pyright: ignore[reportArgumentType]
    ):
        backward = segments.both and bool(examples.fields["backward"][n])
        head, other = int(examples.fields["reused"][n]), bool(examples.fields["pair_label"][n])
        b = segment.index(1)
        assert segment == [0] * b + [1] * (length - 1 - b) + [2]
        assert tokens[b - 1] == tokens[-2] == SEP
        assert tokens[-1] == CLS
        assert special == [token in (CLS, SEP) for token in tokens]
        first, second = tokens[head : b - 1], tokens[b:-2]
        assert first
        assert second
        # Each stretch is one of the endless text, in the direction of its stream; what follows continues there.
        endless = (line[::-1] if backward else line) * 3
        ordinary = [token for token in tokens if token > 4]
        at = endless.index(ordinary[0]) - tokens.index(ordinary[0])
        at += len(line) if at < 0 else 0
        assert tokens[: b - 1] == endless[at : at + b - 1]
        if not other:
            assert second == endless[at + b - 1 : at + length - 3]
        elif second[0] != endless[at + length - 3]:
            assert second[0] in (lasts | {SEP} if backward else begins)
        # A ends with a sentence wherever one ends in the room there is.
        room, rest = length - 3 - head, endless[at + head : at + length - 2]
        borders = [k for k in range(1, room) if (rest[k] in begins if not backward else border(rest, k, lasts))]
        assert len(first) in borders if borders else (len(first) == room // 2 and other)
        marks = lasts if backward else begins
        assert sentences == [token in marks for token in tokens]
        for place, token in enumerate(tokens):
            if token in (CLS, SEP):
                assert not words[place]
            elif backward and token - 4 < len(text.tokens) and tokens[place - 1 : place] == [token + 1]:
                if place not in (head, b):
                    assert words[place] == text.word_starts[token - 4]
            elif not backward:
                assert words[place] == text.word_starts[token - 5]
            else:
                assert words[place]


def border(rest: list[int], k: int, lasts: set[int]) -> bool:
    """Backward, a [SEP] belongs to the sentence that it comes before: its document's last."""
    return rest[k] == SEP or (rest[k] in lasts and rest[k - 1] != SEP)


def test_half_of_the_pairs_follow():
    label = read(Text.random(300), PairStream(64, streams=8, reuse=24)).fields["pair_label"]
    assert len(label) > 2000
    assert 0.5 <= label.mean() < 0.58  # a little more: a sentence may be longer than the room


def test_only_the_pairs_depend_on_the_key():
    text, segments = Text.random(40), PairStream(32, streams=4, reuse=12)
    one, again, other = (segments.plan(text, counter_rng.fold(n)) for n in (1, 1, 2))
    for name in ("starts", "ends", "first", "closed", "opened", "segment"):
        assert np.array_equal(getattr(one, name), getattr(again, name))
    assert not np.array_equal(one.fields["pair_label"], other.fields["pair_label"])
    assert np.array_equal(one.fields["reused"], other.fields["reused"])


def test_the_loader_continues_anywhere_and_tells_what_is_kept():
    def make() -> Loader:
        segments = PairStream(32, streams=4, reuse=12)
        return Loader([(Text.random(12), 1.0)], segments, Permute(), VOCABULARY, seed=3, batch_tokens=128)

    walk = make().steps()
    steps = [next(walk) for _ in range(9)]
    walk.close()
    walk = make().steps(steps[4][1])
    resumed = [next(walk) for _ in range(4)]
    walk.close()
    for (ours, _), (theirs, _) in zip(steps[5:], resumed, strict=True):
        (one,), (other,) = ours, theirs
        assert one.tokens.equal(other.tokens)
        assert one.token_info.appears.equal(other.token_info.appears)
    (before,), (after,) = steps[2][0], steps[3][0]
    assert before.keep == 12
    assert before.backward is not None
    assert before.backward.tolist() == [False, False, True, True]
    assert before.token_info.position[:, -1].tolist() == [31, 31, -31, -31]
    label = before.example["pair_label"]
    for row in range(4):  # the next row begins with what followed the reused tokens of this one
        if not label[row]:
            shown = [token for token in before.tokens[row, 12:].tolist() if token != CLS]
            assert shown[:2] == after.tokens[row, :2].tolist() or SEP in shown[:2]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (PairStream(streams=0), r"streams = 0: 1 or more"),
        (PairStream(streams=3), r"streams = 3: half of the streams are read backward; use 4, or both = false"),
        (PairStream(64, reuse=60), r"reuse = 60: a row of 64 tokens also holds .*use 2 to 59; half"),
        (PairStream(reuse=1), r"reuse = 1"),
    ],
)
def test_what_cannot_be_is_refused(wrong, message):
    with pytest.raises(InputError, match=message):
        spec.check(wrong, "segments")


def test_too_little_text_is_refused():
    with pytest.raises(InputError, match=r"41 tokens; a row of 32 tokens, and as many elsewhere.*shorter rows"):
        PairStream(32, streams=2, reuse=8).plan(Text([[40]]), counter_rng.fold(0))
    with pytest.raises(InputError, match=r"reuse = 64: a row of 32"):  # a phase of shorter rows
        PairStream(32, streams=2).plan(Text.random(20), counter_rng.fold(0))


def test_phrases_read_backward_begin_at_their_end():
    marks = np.array([0, PHRASE_START, PHRASE_INSIDE, PHRASE_INSIDE, PHRASE_START, 0, PHRASE_START], dtype=np.uint8)
    words = np.array([1, 1, 0, 1, 1, 0, 1], dtype=bool)
    tokens = np.arange(10, 17, dtype=np.int32)
    plan = ExamplePlan(
        starts=np.array([0, 0]),
        ends=np.array([7, 7]),
        segment=np.zeros(2, dtype=np.int8),
        first=np.arange(3),
        fields={"backward": np.array([False, True])},
        opened=np.zeros(2, dtype=bool),
    )
    take = lambda starts, ends: Columns(*(np.tile(each, 2) for each in (tokens, words, marks)))  # noqa: E731
    result = assemble(plan, np.arange(2), take, VOCABULARY)
    assert result.tokens.tolist() == [*range(10, 17), SEP, SEP, *range(16, 9, -1)]
    assert result.units is not None
    s, i = PHRASE_START, PHRASE_INSIDE
    assert result.units.tolist() == [*marks.tolist(), 0, 0, s, 0, s, s, i, i, 0]
    assert result.word_starts.astype(int).tolist() == [*words.tolist(), 0, 0, 1, 1, 0, 1, 1, 0, 1]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"segments": 2}, r"embed\.segments = 2: examples of PairStream have 3 segments; use 3, or 0 for none"),
        ({"positions": LearnedPositions(512)}, r"embed\.positions = LearnedPositions: positions of rows .* below 0"),
        ({"positions": AxialPositions((16, 32), (32, 224))}, r"embed\.positions = AxialPositions"),
    ],
)
def test_an_embedding_without_its_segments_or_positions_is_refused(change, sentence):
    r = recipe("xlnet_mini")
    r.objective.segments = PairStream()
    r.encoder.embed = dataclasses.replace(r.encoder.embed, **change)
    with pytest.raises(RecipeError, match=sentence):
        spec.check(r, r.name)
    r.encoder.embed = dataclasses.replace(r.encoder.embed, segments=3, positions=SinusoidalPositions())
    spec.check(r, r.name)


def test_a_state_cannot_continue_behind_the_first_tokens():
    r = recipe("elmo_mini")
    r.objective.segments = PairStream(length=32, streams=4, reuse=8)
    assert r.encoder.stack.memory
    with pytest.raises(RecipeError, match=r"segments = PairStream: rows continue .* a state is of the last one alone"):
        spec.check(r, r.name)
    r.encoder.stack.memory = 0
    spec.check(r, r.name)
