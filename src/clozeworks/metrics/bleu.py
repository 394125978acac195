"""BLEU by sacrebleu, so that a score means what it means elsewhere."""

import functools
from collections.abc import Sequence
from typing import Any

from clozeworks.core.characters import is_han
from clozeworks.core.errors import InputError


def bleu(translations: Sequence[str], wanted: Sequence[str], lowercase: bool = False) -> dict[str, Any]:
    """Corpus BLEU (Papineni et al. 2002) of translations against one reference each, and the signature (Post 2018) that
    says how it was counted: Chinese by characters (tok:zh), other text by mteval's rules (tok:13a); `lowercase` where
    a model knows no capitals."""
    metric = _metric()(tokenize="zh" if is_chinese(wanted) else "13a", lowercase=lowercase)
    score = metric.corpus_score(list(translations), [list(wanted)])
    return {"bleu": score.score, "bleu_signature": str(metric.get_signature())}


def resampled(translations: Sequence[str], wanted: Sequence[str], lowercase: bool = False) -> float:
    """The same score, of texts that come again and again, as those of resampled rows do: each pair is counted once."""
    made, tokenize = _metric(), "zh" if is_chinese(wanted) else "13a"
    pairs = [_counted(one, other, tokenize, lowercase) for one, other in zip(translations, wanted, strict=True)]
    lengths, correct, total = ([sum(column) for column in zip(*part, strict=True)] for part in zip(*pairs, strict=True))
    return made.compute_bleu(correct, total, *lengths, smooth_method="exp").score


@functools.lru_cache(1 << 16)
def _counted(translation: str, wanted: str, tokenize: str, lowercase: bool) -> tuple[tuple[int, ...], ...]:
    """Lengths of the two; of each order the n-grams that both have, and those of the translation."""
    one = _metric()(tokenize=tokenize, lowercase=lowercase, effective_order=True).sentence_score(translation, [wanted])
    return (one.sys_len, one.ref_len), tuple(one.counts), tuple(one.totals)


def is_chinese(texts: Sequence[str]) -> bool:
    """More than a third of the letters."""
    counts = [_letters(text) for text in texts]
    return 3 * sum(han for han, _ in counts) > sum(every for _, every in counts)


@functools.lru_cache(1 << 16)
def _letters(text: str) -> tuple[int, int]:
    """Those that are Chinese, and all."""
    letters = [letter for letter in text if letter.isalpha()]
    return sum(map(is_han, letters)), len(letters)


def _metric() -> Any:
    try:
        from sacrebleu.metrics.bleu import BLEU
    except ImportError:
        needed, todo = "the package sacrebleu is needed", "pip install clozeworks[bleu]"
        raise InputError("bleu", "sacrebleu is not installed", needed, todo) from None
    return BLEU
