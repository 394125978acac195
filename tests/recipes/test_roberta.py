"""The variants of RoBERTa's tables: formats, masks that repeat or not, sizes of batches, Chinese whole words."""

from collections import Counter

import pytest

import clozeworks as cw
from clozeworks.data.batches.loader import Loader
from clozeworks.objectives.objective import Segments
from clozeworks.objectives.segments import DocSentences, FullSentences, SegmentPair, SentencePair
from clozeworks.recipes import recipe
from tests.objectives.layouts import VOCABULARY
from tests.toys import Text

FORMATS: dict[str, tuple[type[Segments], bool]] = {  # and whether they learn from pairs
    "roberta_mini_segment_pair": (SegmentPair, True),
    "roberta_mini_sentence_pair": (SentencePair, True),
    "roberta_mini": (FullSentences, False),
    "roberta_mini_doc_sentences": (DocSentences, False),
}


@pytest.mark.parametrize("name", FORMATS)
def test_the_four_formats(name):
    kind, pairs = FORMATS[name]
    r = recipe(name)
    assert type(r.objective.segments) is kind
    assert r.objective.segments.length == 128
    assert [loss.name for loss in r.objective.losses] == ["masked_lm", *(["sentence_pair"] if pairs else [])]
    assert r.encoder.embed.segments == (2 if pairs else 1)
    expected = {"name", "objective.segments"} | ({"encoder.embed.segments", "objective.losses"} if pairs else set())
    changed = {path.removesuffix(".1") for path in cw.diff("roberta_mini", name)}
    assert changed == (expected if name != "roberta_mini" else set())


def masks(name: str, epochs: int) -> Counter:
    """How often each example was shown with each mask, through the loader."""
    r = recipe(name)
    text, segments = Text([[20, 20, 20]] * 12), FullSentences(length=64)  # a document a row
    loader = Loader([(text, 1.0)], segments, r.objective.corruption, VOCABULARY, seed=3, batch_tokens=256)
    seen: Counter = Counter()
    steps = loader.steps()
    for _ in range(3 * epochs):
        (batch,), _ = next(steps)
        tokens = batch.tokens.flatten().tolist()
        for index, start, length in zip(batch.index, batch.layout.starts, batch.layout.lengths, strict=False):
            assert length == 62
            hidden = [at for at in batch.targets.tolist() if start <= at < start + length]
            seen[index, tuple(tokens[start : start + length]), tuple(at - start for at in hidden)] += 1
    steps.close()
    return seen


def test_forty_epochs_of_ten_copies_show_each_mask_four_times():
    assert set(cw.diff("roberta_mini", "roberta_mini_static")) == {"name", "objective.corruption.copies"}
    seen = masks("roberta_mini_static", 40)
    assert len(seen) == 10 * 12
    assert set(seen.values()) == {4}


def test_masks_that_are_drawn_anew_never_repeat():
    seen = masks("roberta_mini", 40)
    assert len(seen) == 40 * 12
    assert set(seen.values()) == {1}


def test_batches_of_any_size_see_about_as_many_sequences():
    table = {"roberta_base_256": (256, 1e-4, 256e6), "roberta_base_2k": (2048, 7e-4, 256e6),
             "roberta_base_8k": (8192, 1e-3, 253.952e6)}  # fmt: skip
    for name, (rows, learning_rate, sequences) in table.items():
        train = recipe(name).train
        assert train.batch_tokens == rows * 512
        assert train.steps * train.batch_tokens / 512 == sequences
        assert train.learning_rate == learning_rate
        assert train.micro_tokens == 16 * 512, "a step is worked off in pieces"
        changed = set(cw.diff("roberta_base", name)) - {"name"}
        assert changed <= {"train.batch_tokens", "train.steps", "train.learning_rate", "train.warmup"}


def test_chinese_whole_words_in_berts_classes():
    r = recipe("roberta_wwm_base")
    assert r.encoder == recipe("bert_base_chinese").encoder
    assert [loss.name for loss in r.objective.losses] == ["masked_lm"]
    assert (r.longest(), r.train.phases) == (512, ())
    assert (r.train.steps, r.train.batch_tokens) == (1_000_000, 384 * 512)
    large = recipe("roberta_wwm_large").train
    assert (large.steps, large.batch_tokens) == (2_000_000, 512 * 512)
    assert cw.count_parameters("roberta_wwm_base", heads=False) == 102_267_648
    assert cw.count_parameters("roberta_wwm_large", heads=False) == 325_522_432
    assert type(recipe("roberta_wwm_mini").objective.corruption) is type(r.objective.corruption)
