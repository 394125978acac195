"""What the formats make of a text: labels, borders, what is lost, how full the rows are."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from clozeworks.core import counter_rng
from clozeworks.core.examples import ExamplePlan
from clozeworks.data.batches.rows import Epoch, Source
from clozeworks.objectives.objective import Segments
from clozeworks.objectives.segments import (
    DocSentences,
    FullSentences,
    Pairs,
    SegmentPair,
    SentenceOrder,
    SentencePair,
    Stream,
)
from clozeworks.objectives.segments.chunks import divide, gather, targets
from clozeworks.objectives.segments.sentences import cut
from studies.conformance.material import Material, Text
from studies.conformance.results import Group, Result, exact, share

DOCUMENTS = 200_000  # target lengths drawn without a text


@dataclass(frozen=True, slots=True)
class Packed:
    """One format at one length."""

    format: str
    length: int
    examples: int
    tokens: float  # of an example, in the mean
    examples_a_row: float
    padding: float  # share of the places of all rows
    left_out: float  # share of the text's tokens that an epoch does not show
    crossing: float  # share of the examples that hold text of two documents
    too_long: int  # examples longer than a row


def format_groups(material: Material) -> list[Group]:
    return [_next_sentence(material), _order(material), _rows(material)]


def packed(material: Material) -> Iterator[Packed]:
    """Every format at 128 and 512."""
    for length in (128, 512):
        one_sided = (
            SegmentPair(length), SentencePair(length), FullSentences(length), DocSentences(length),
            SentenceOrder(length), Stream(length),
        )  # fmt: skip
        for segments in one_sided:
            yield _packed(material.source(segments, None).epoch(0), segments, material.text)
        if material.sides is not None:
            segments = Pairs(length, target_length=length // 2)
            source = Source(material.sides, segments, None, material.vocabulary, material.seed)
            yield _packed(source.epoch(0), segments, material.sides)


def _packed(epoch: Epoch, segments: Segments, text: Text) -> Packed:
    plan, order = epoch.plan, epoch.order()
    rows = sum(len(epoch.rows(pool, order)) for pool in range(epoch.pools()))
    lengths = plan.lengths
    document = documents_of(plan, text)
    low, high = np.minimum.reduceat(document, plan.first[:-1]), np.maximum.reduceat(document, plan.first[:-1])
    return Packed(
        format=type(segments).__name__,
        length=segments.length,
        examples=len(plan),
        tokens=int(lengths.sum()) / len(plan),
        examples_a_row=len(plan) / rows,
        padding=1 - int(lengths.sum()) / (rows * segments.length),
        left_out=1 - shown(plan, text) / int(text.sentences[-1]),
        crossing=int((high > low).sum()) / len(plan),
        too_long=int((lengths > segments.length).sum()),
    )


def documents_of(plan: ExamplePlan, text: Text) -> np.ndarray:
    """[pieces]: the document each comes from."""
    return np.searchsorted(text.sentences[text.documents], plan.starts, side="right") - 1


def shown(plan: ExamplePlan, text: Text) -> int:
    """Tokens of the text that an epoch shows in their turn; a second side from elsewhere is none."""
    other = np.zeros(len(plan.starts), dtype=bool)
    label = plan.fields.get("pair_label")
    if label is not None and (documents_of(plan, text)[1::2] != documents_of(plan, text)[::2]).any():
        other[1::2] = label == 1
    change = np.zeros(int(text.sentences[-1]) + 1, dtype=np.int64)
    np.add.at(change, plan.starts[~other], 1)
    np.add.at(change, plan.ends[~other], -1)
    return int((np.cumsum(change)[:-1] > 0).sum())


# ---- next sentence


def _next_sentence(material: Material) -> Group:
    results: list[Result] = []
    for length in (128, 512):
        segments = SegmentPair(length)
        epoch = material.source(segments, None).epoch(0)
        label = epoch.plan.fields["pair_label"] == 1
        several = _several(epoch, segments, material.text)
        results += [
            share(f"SegmentPair at {length}: B from elsewhere", "0.5", "BERT 3.1", label, None),
            share(
                f"SegmentPair at {length}: the same, of chunks of two sentences or more",
                "0.5",
                "BERT code",
                label[several],
                0.5,
            ),
            exact(
                f"SegmentPair at {length}: chunks of one sentence with a following B",
                "0",
                "BERT code",
                int((~label[~several]).sum()),
                0,
                int((~several).sum()),
            ),
        ]
        results += _sides(f"SegmentPair at {length}", epoch.plan, material.text)
    drawn = targets(DOCUMENTS, 125, 0.1, counter_rng.fold(material.seed, "conformance"))
    results.append(
        share("SegmentPair at 128: documents with a shorter target", "0.1", "BERT code", drawn < 125, 0.1 * 123 / 124)
    )
    segments = SentencePair(128)
    epoch = material.source(segments, None).epoch(0)
    label = epoch.plan.fields["pair_label"] == 1
    last = np.isin(epoch.plan.ends[::2], material.text.sentences[material.text.documents])
    results += [
        share("SentencePair: B from elsewhere", "0.5", "RoBERTa 4.2", label, None),
        share("SentencePair: the same, where a next sentence is left", "0.5", "RoBERTa 4.2", label[~last], 0.5),
    ]
    results += _sides("SentencePair", epoch.plan, material.text)
    return Group(
        "Next sentence: SegmentPair, SentencePair",
        "The papers say half. A chunk of one sentence, or the last sentence of a document, has nothing that "
        "follows it and always gets a second side from elsewhere, in the released code too (which gives 0.60 "
        "on a toy text): the share over all examples is above a half and depends on the text, the share where "
        "there is a choice is a half.",
        results,
    )


def _sides(name: str, plan: ExamplePlan, text: Text) -> list[Result]:
    """Where the second side comes from, held against the label."""
    a, b = documents_of(plan, text).reshape(-1, 2).T
    label = plan.fields["pair_label"] == 1
    after = (a == b) & (plan.starts[1::2] >= plan.ends[::2])
    same = int((a == b)[label].sum())
    return [
        exact(
            f"{name}: following B that does not follow A",
            "0",
            "BERT 3.1",
            int((~after[~label]).sum()),
            0,
            int((~label).sum()),
        ),
        exact(f"{name}: B from elsewhere that is of A's document", "0", "BERT 3.1", same, 0, int(label.sum())),
    ]


def _several(epoch: Epoch, segments: SegmentPair, text: Text) -> np.ndarray:
    """[examples] bool: its chunk has two sentences or more. The walk over the chunks, repeated from the labels."""
    key, room = counter_rng.fold(epoch.key, "segments"), segments.length - 3
    sentences = cut(text, room, (room + 1) // 2)
    begin = np.arange(sentences.count)
    end = gather(sentences, targets(len(sentences.documents) - 1, room, segments.short, key), begin)
    middle = divide(begin, end, key).tolist()
    ends, at, longer = end.tolist(), 0, []
    for other in epoch.plan.fields["pair_label"].tolist():
        longer.append(ends[at] - at > 1)
        at = min(middle[at] if other else ends[at], sentences.count - 1)  # only labels that are wrong lead beyond
    return np.array(longer)


# ---- sentence order


def _order(material: Material) -> Group:
    results: list[Result] = []
    for length in (128, 512):
        plan = material.source(SentenceOrder(length), None).epoch(0).plan
        a, b = documents_of(plan, material.text).reshape(-1, 2).T
        label = plan.fields["pair_label"] == 1
        before = plan.ends[::2] <= plan.starts[1::2]
        name = f"SentenceOrder at {length}"
        results += [
            share(f"{name}: swapped", "0.5", "ALBERT 3.1", label, 0.5),
            exact(
                f"{name}: labels that the places contradict",
                "0",
                "ALBERT 3.1",
                int((before == label).sum()),
                0,
                len(label),
            ),
            exact(f"{name}: sides of two documents", "0", "ALBERT 3.1", int((a != b).sum()), 0, len(label)),
        ]
    return Group(
        "Sentence order: SentenceOrder",
        "Both sides are neighbours in one document; the label says which comes first.",
        results,
    )


# ---- rows


def _rows(material: Material) -> Group:
    text = material.text
    tokens, borders = int(text.sentences[-1]), text.sentences[text.documents]
    results: list[Result] = []
    for segments in (FullSentences(512), DocSentences(512)):
        plan = material.source(segments, None).epoch(0).plan
        name = type(segments).__name__
        long = np.diff(text.sentences).max(initial=0) > segments.length - 2
        inner = ~np.isin(plan.starts, text.sentences)
        results.append(
            exact(f"{name}: tokens that an epoch leaves out", "0", "RoBERTa 4.2", tokens - shown(plan, text), 0, tokens)
        )
        if not long:
            results.append(
                exact(
                    f"{name}: pieces that begin within a sentence", "0", "RoBERTa 4.2", int(inner.sum()), 0, len(inner)
                )
            )
        if isinstance(segments, DocSentences):
            crossed = int(
                (np.searchsorted(borders, plan.starts, "right") != np.searchsorted(borders, plan.ends, "left")).sum()
            )
            results.append(exact(f"{name}: examples over a document border", "0", "RoBERTa 4.2", crossed, 0, len(plan)))
        else:
            pieces = np.diff(plan.first)
            seps = plan.lengths - 1 - np.add.reduceat(plan.ends - plan.starts, plan.first[:-1])
            results.append(
                exact(
                    f"{name}: [SEP] a border, and one at the end", "1", "RoBERTa 4.2", seps - (pieces - 1), 1, len(plan)
                )
            )
    results += _stream(material)
    if material.sides is not None:
        plan = Source(material.sides, Pairs(512, 256), None, material.vocabulary, material.seed).epoch(0).plan
        a, b = documents_of(plan, material.sides).reshape(-1, 2).T
        late = (plan.starts[::2] >= plan.starts[1::2]) | (a != b)
        results.append(
            exact(
                "Pairs at 512: targets that are not of their source",
                "0",
                "Transformer 3.1",
                int(late.sum()),
                0,
                len(plan),
            )
        )
        lost = int(plan.fields["cut"].sum())
        results.append(Result("Pairs at 512: tokens cut away", "", "", lost, int(material.sides.sentences[-1])))
    return Group(
        "Rows: FullSentences, DocSentences, Stream, Pairs",
        "What each format promises of its rows, counted where it is broken.",
        results,
    )


def _stream(material: Material) -> list[Result]:
    """The rows of a stream end to end are a stretch of the text, and the streams end to end are the text."""
    segments = Stream(128, streams=8)
    plan = material.source(segments, None).epoch(0).plan
    stream, tokens = plan.fields["stream"], int(material.text.sentences[-1])
    owner = np.repeat(np.arange(len(plan)), np.diff(plan.first))
    order = np.lexsort((np.arange(len(owner)), owner, stream[owner]))
    starts, ends = plan.starts[order], plan.ends[order]
    filled = ends > starts
    torn = int((starts[filled][1:] != ends[filled][:-1]).sum())
    begins = int((~plan.fields["continues"]).sum())
    return [
        exact(
            "Stream: rows that do not continue where their stream stood", "0", "Transformer-XL 3.2", torn, 0, len(plan)
        ),
        exact("Stream: rows of 8 streams that begin one", "8", "Transformer-XL 3.2", begins, 8, len(plan)),
        exact("Stream: tokens that an epoch leaves out", "0", "", tokens - shown(plan, material.text), 0, tokens),
    ]
