"""What stands in the place of a masked token, counted: 80/10/10, and where random tokens come from."""

import numpy as np

from clozeworks.core.examples import NOTHING, RaggedBatch
from clozeworks.objectives.mask import MaskNgrams, MaskPhrases, MaskSpans, MaskTokens, MaskWholeWords, Replace
from clozeworks.objectives.mask.masking import Masking, run_starts
from clozeworks.objectives.segments import SentenceOrder
from studies.conformance.material import Material, cited
from studies.conformance.results import Group, Result, exact, share

SOURCES = {  # what the random tokens are, and who has it so
    "vocabulary": ("any", "BERT code"),
    "ordinary": ("not special", "RoBERTa code"),
    "corpus": ("as the text", "SpanBERT code"),
}


def fate_groups(material: Material) -> list[Group]:
    return [_fates(material), _random_tokens(material)]


def _fates(material: Material) -> Group:
    results: list[Result] = []
    masks: list[Masking] = [MaskTokens(), MaskWholeWords(), MaskNgrams(), MaskSpans()]
    if material.annotated:
        masks += [MaskPhrases(stage="phrase"), MaskPhrases(stage="entity")]
    for mask in masks:
        masked = material.masked(SentenceOrder(length=128), mask, epochs=2)
        name = type(mask).__name__ + (f"({mask.stage})" if isinstance(mask, MaskPhrases) else "")
        fate, hit, luck, mixed = fates(masked, mask.replace, material)
        per = "spans" if mask.replace.per == "span" else "tokens"
        for kind, (label, paper) in enumerate((("[MASK]", 0.8), ("random", 0.1), ("kept", 0.1))):
            expected = (0.8 + 0.1 * luck, 0.1 * (1 - hit - luck), 0.1 + 0.1 * hit)[kind]
            results.append(share(f"{name}: {per} {label}", f"{paper}", cited(mask), fate == kind, expected))
        if per == "spans":
            results.append(exact(f"{name}: spans with two fates", "0", cited(mask), mixed, 0, len(fate)))
    return Group(
        "What stands in its place",
        "Of the masked tokens, or of the masked spans where a span shares one fate. A random token that comes out as "
        "the one that was there counts as kept; what is expected is mended by that chance.",
        results,
    )


def fates(masked: RaggedBatch, replace: Replace, material: Material) -> tuple[np.ndarray, float, float, int]:
    """Of each masked token or span: 0 [MASK], 1 random, 2 kept. Then the chance that a random one comes out as it was,
    or as the mask token, which cannot be distinguished from the other fates; and the spans whose tokens had two."""
    at = np.flatnonzero(masked.labels != NOTHING)
    starts = np.ones(len(at), dtype=bool)
    if replace.per == "span":
        starts = run_starts(masked, at, masked.example[at])
    begins = np.flatnonzero(starts)
    size = np.diff(np.append(begins, len(at)))
    new, old = masked.tokens[at], masked.labels[at]
    replaced = np.add.reduceat(new == material.vocabulary.mask, begins)
    kept = np.add.reduceat(new == old, begins)
    fate = np.select([replaced == size, kept == size], [0, 2], 1)
    chance = chances(replace, material)
    hit = float(np.multiply.reduceat(chance[old], begins).mean())
    luck = float((chance[material.vocabulary.mask] ** size).mean())
    return (
        fate,
        hit,
        luck,
        int(((replaced > 0) & (replaced < size)).sum()) if chance[material.vocabulary.mask] == 0 else 0,
    )


def chances(replace: Replace, material: Material) -> np.ndarray:
    """[vocabulary]: how likely a random token is each token."""
    vocabulary = material.vocabulary
    if replace.source == "corpus":
        counts = material.text.unigram()
        return counts / counts.sum()
    out = np.ones(vocabulary.size)
    if replace.source == "ordinary":
        out[list(vocabulary.special)] = 0
    return out / out.sum()


def _random_tokens(material: Material) -> Group:
    results: list[Result] = []
    special = np.zeros(material.vocabulary.size, dtype=bool)
    special[list(material.vocabulary.special)] = True
    frequent = np.zeros(material.vocabulary.size, dtype=bool)
    frequent[np.argsort(-material.text.unigram(), kind="stable")[:20]] = True
    kinds = (Replace(source="vocabulary"), Replace(source="ordinary"), Replace(source="corpus"))
    for replace in kinds:
        origin, (stated, where) = replace.source, SOURCES[replace.source]
        masked = material.masked(SentenceOrder(length=128), MaskTokens(replace=replace), epochs=2)
        at = np.flatnonzero(masked.labels != NOTHING)
        new, old = masked.tokens[at], masked.labels[at]
        random = (new != old) & (new != material.vocabulary.mask)
        chance = chances(replace, material)
        for name, group in (("special", special), ("among the 20 most frequent", frequent)):
            # A random token that came out as the old one, or as the mask, is not seen to be random.
            seen = 1 - chance[old[random]] - chance[material.vocabulary.mask]
            wanted = chance[group].sum() - chance[material.vocabulary.mask] * group[material.vocabulary.mask]
            expected = float(((wanted - chance[old[random]] * group[old[random]]) / seen).mean())
            what = f"source {origin}: random tokens {name}"
            if name == "special" and origin == "ordinary":
                results.append(exact(what, "0", where, int(group[new[random]].sum()), 0, int(random.sum())))
            else:
                results.append(share(what, stated, where, group[new[random]], expected))
    return Group(
        "Where random tokens come from",
        "`Replace(source=...)`. The share of special tokens, and of the twenty that the text has most often, among the "
        "random tokens that differ from the old ones.",
        results,
    )
