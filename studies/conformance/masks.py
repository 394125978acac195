"""What the masks hide, counted: how many tokens, which units, runs of which length, how often the same."""

from dataclasses import replace

import numpy as np

from clozeworks.core import counter_rng
from clozeworks.core.examples import ENTITY_INSIDE, ENTITY_START, NOTHING, PHRASE_INSIDE, PHRASE_START, RaggedBatch
from clozeworks.data.batches.rows import Source
from clozeworks.objectives.mask import MaskNgrams, MaskPhrases, MaskSpans, MaskTokens, MaskWholeWords
from clozeworks.objectives.mask.masking import Masking, ordinary, run_starts
from clozeworks.objectives.mask.units import Units, annotated, words
from clozeworks.objectives.segments import DocSentences, SentenceOrder, Stream
from studies.conformance.material import Head, Material, Single, cited
from studies.conformance.results import Group, Result, exact, mean, share

DRAWN = 200_000  # lengths drawn without a text


def mask_groups(material: Material) -> list[Group]:
    parts = (_counts, _whole, _ngram_lengths, _span_lengths, _times)
    return [measure(material) for measure in parts]


# ---- how many


def _counts(material: Material) -> Group:
    results: list[Result] = []
    for length, paper in ((128, 19), (512, 77)):
        rows = SentenceOrder(length=length)
        count = _full(material.masked(rows, MaskTokens()), length)
        results.append(
            exact(f"MaskTokens: predictions of {length} tokens", f"{paper}", "BERT code", count, paper, len(count))
        )
        if length == 512:
            count = _full(material.masked(rows, MaskTokens(most=20)), length)
            results.append(exact("MaskTokens(most=20): predictions of 512", "20", "BERT code", count, 20, len(count)))
        count = _full(material.masked(rows, MaskTokens(rounding="random")), length)
        exactly = 0.15 * length
        results.append(
            mean(f"rounding random: mean predictions of {length}", f"{exactly}", "RoBERTa code", count, exactly)
        )
        units: list[Masking] = [MaskWholeWords(), MaskNgrams(), *([MaskPhrases()] if material.annotated else [])]
        for mask in units:
            count = _full(material.masked(rows, mask), length)
            above = int((count > paper).sum())
            name = type(mask).__name__
            results += [
                exact(f"{name}: examples of {length} above {paper}", "0", cited(mask), above, 0, len(count)),
                mean(f"{name}: mean predictions of {length}", f"{paper} or less", cited(mask), count, None),
            ]
    masked = material.masked(Stream(length=510, streams=1), MaskSpans())
    full = (masked.lengths == 510) & (ordinary(masked) == 510)
    count = _predicted(masked)[full]
    results.append(
        exact("MaskSpans: predictions of 510 tokens (a share of .15098)", "77", "SpanBERT code", count, 77, len(count))
    )
    return Group(
        "How much is masked",
        "Predictions of examples that fill their row. `most` caps them; without it the number grows with the length.",
        results,
    )


def _predicted(masked: RaggedBatch) -> np.ndarray:
    """[examples]: predictions."""
    before = np.append(0, np.cumsum(masked.labels != NOTHING))
    return np.diff(before[masked.first])


def _full(masked: RaggedBatch, length: int) -> np.ndarray:
    """The predictions of examples that fill their row."""
    return _predicted(masked)[masked.lengths == length]


# ---- units


def inside(masked: RaggedBatch, units: Units) -> np.ndarray:
    """[units]: predicted tokens."""
    before = np.append(0, np.cumsum(masked.labels != NOTHING))
    return before[units.at + units.sizes] - before[units.at]


def _whole(material: Material) -> Group:
    results: list[Result] = []
    bits = {"phrase": (PHRASE_START, PHRASE_INSIDE), "entity": (ENTITY_START, ENTITY_INSIDE)}
    for mask in (MaskWholeWords(), MaskNgrams()):
        masked = material.masked(SentenceOrder(length=128), mask)
        results.append(_broken(f"{type(mask).__name__}: words masked in part", mask, masked, words(masked)))
    for stage in ("phrase", "entity") if material.annotated else ():
        mask = MaskPhrases(stage=stage)
        masked = material.masked(SentenceOrder(length=128), mask)
        assert masked.units is not None
        units = annotated(masked, masked.units, *bits[stage])
        results.append(_broken(f"MaskPhrases({stage}): units masked in part", mask, masked, units))
    masked = material.masked(DocSentences(length=512), MaskSpans())
    units = words(masked)
    count = inside(masked, units)
    example = np.searchsorted(masked.first, units.at, side="right") - 1
    cut = np.bincount(example[(count > 0) & (count < units.sizes)], minlength=len(masked))
    results.append(
        exact(
            "MaskSpans: examples with more than one word cut",
            "0",
            "SpanBERT code",
            int((cut > 1).sum()),
            0,
            len(masked),
        )
    )
    return Group(
        "Words and units are masked whole",
        "Units of which some tokens are masked and some are not, of all units touched. A span may be cut "
        "where the budget is met, so one word of an example may be.",
        results,
    )


def _broken(what: str, mask: Masking, masked: RaggedBatch, units: Units) -> Result:
    count = inside(masked, units)
    touched = count > 0
    return exact(what, "0", cited(mask), int((count[touched] < units.sizes[touched]).sum()), 0, int(touched.sum()))


# ---- lengths of runs and spans


def _ngram_lengths(material: Material) -> Group:
    drawn = MaskNgrams().lengths(counter_rng.uniform(counter_rng.fold(material.seed, "conformance"), np.arange(DRAWN)))
    results = [
        share(f"drawn: {n} word{'s' * (n > 1)}", f"{6 // n}/11", "ALBERT 4.1", drawn == n, 6 / n / 11)
        for n in (1, 2, 3)
    ]
    results.append(mean("drawn: mean words", "1.636", "ALBERT 4.1", drawn, 18 / 11))
    lengths = runs(material.masked(DocSentences(length=512), MaskNgrams()))
    results.append(
        mean("in the text: mean words of a run, neighbours joined", "1.60", "ALBERT code, toy text", lengths, None)
    )
    return Group(
        "Runs of words: MaskNgrams",
        "Lengths as they are drawn, and what becomes of them in a text: runs are cut at the end of a piece or "
        "to fit, and neighbours join.",
        results,
    )


def _span_lengths(material: Material) -> Group:
    numbers = counter_rng.bits(counter_rng.fold(material.seed, "conformance"), np.arange(DRAWN)) >> np.uint64(32)
    drawn = MaskSpans().lengths(numbers)
    chance = 0.2 * 0.8 ** np.arange(10)
    chance /= chance.sum()
    results = [
        share(f"drawn: {n} word{'s' * (n > 1)}", f"{p:.4f}", "SpanBERT 3.1", drawn == n, float(p))
        for n, p in enumerate(chance, 1)
    ]
    results.append(mean("drawn: mean words", "3.797", "SpanBERT 3.1", drawn, float(chance @ np.arange(1, 11))))
    blocks = Stream(length=510, streams=1)
    plain = replace(material, text=Single(material.text))
    lengths = runs(plain.masked(blocks, MaskSpans()))
    results.append(
        mean("in a text of one-token words: mean words of a span", "3.95", "SpanBERT code, toy text", lengths, None)
    )
    lengths = runs(material.masked(blocks, MaskSpans()))
    results.append(mean("in the text: mean words of a span", "", "", lengths, None))
    return Group(
        "Spans of words: MaskSpans",
        "Lengths as they are drawn, and what becomes of them in a text: spans that touch join, the last one "
        "is cut, and no span goes over a document border.",
        results,
    )


def runs(masked: RaggedBatch) -> np.ndarray:
    """Words of each run of masked tokens; a word of which a part is masked counts."""
    at = np.flatnonzero(masked.labels != NOTHING)
    begins = np.flatnonzero(run_starts(masked, at, masked.example[at]))
    first = masked.word_starts[at].copy()
    first[begins] = True
    return np.add.reduceat(first.astype(np.int64), begins)


# ---- time


def _times(material: Material) -> Group:
    results: list[Result] = []
    text = Head.of(material.text, 20_000)
    for copies, name, different in ((10, "10 static copies", 10), (None, "masks anew", 40)):
        source = Source(text, DocSentences(length=128), MaskTokens(copies=copies), material.vocabulary, material.seed)
        long = np.flatnonzero(source.epoch(0).plan.lengths > 64)
        seen: dict[tuple[int, bytes], int] = {}
        for number in range(40):
            masked = source.epoch(number).examples(long)
            for example in range(len(long)):
                here = slice(masked.first[example], masked.first[example + 1])
                mask = example, (masked.labels[here] != NOTHING).tobytes()
                seen[mask] = seen.get(mask, 0) + 1
        count = np.bincount([example for example, _ in seen], minlength=len(long))
        times, each = np.array(list(seen.values())), 40 // different
        results += [
            exact(f"{name}: different masks of an example", f"{different}", "RoBERTa 4.1", count, different, len(long)),
            exact(f"{name}: times that each is seen", f"{each}", "RoBERTa 4.1", times, each, len(seen)),
        ]
    return Group(
        "Static and dynamic masks",
        "The masks of each example of more than 64 tokens over 40 epochs.",
        results,
    )
