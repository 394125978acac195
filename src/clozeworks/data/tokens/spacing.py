"""Spaces as people write them, for text of a tokenizer that sets every mark apart and keeps no space.

What was written cannot be known from such tokens; these are the usual habits of European and Chinese text.
"""

import re

# Kana, Chinese characters and their punctuation, wide forms: none has spaces around it.
_UNSPACED = "\u2e80-\u303f\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff"
_HABITS = (
    (rf" *([{_UNSPACED}]) *", r"\1"),
    (r" +([,.!?:;%)\]}\u2019\u201d\u2026])", r"\1"),
    (r"([(\[{\u201c\u00bf\u00a1]) +", r"\1"),
    (r"(?<=\d)([.,]) (?=\d)", r"\1"),  # 1,000
    (r"(?<=[^\W\d_]) (['\u2019]) (?=[^\W\d_])", r"\1"),  # don't
    (r"(?<=\w) ([-/]) (?=\w)", r"\1"),  # T-Shirt
)
_PATTERNS = tuple((re.compile(pattern), put) for pattern, put in _HABITS)
_QUOTED = re.compile(r'" ?([^"]*?) ?"')


def respaced(text: str) -> str:
    """The text without the spaces that a tokenizer put around marks."""
    for pattern, put in _PATTERNS:
        text = pattern.sub(put, text)
    return _QUOTED.sub(r'"\1"', text).strip()
