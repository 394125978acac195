"""Classes of characters."""

HALF_A_PAIR = "half a surrogate pair (\\ud800 to \\udfff)"


def is_unicode(text: str) -> bool:
    """Whether every character stands for itself: half a surrogate pair, which JSON can hold, is none."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


# What a terminal obeys instead of showing it: control characters but tab and new line, and those that turn text round.
_TURNING = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
OBEYED = (*range(9), *range(11, 32), *range(127, 160), *_TURNING)
_SHOWN = dict.fromkeys(OBEYED, "\N{REPLACEMENT CHARACTER}")


def show_controls(text: str) -> str:
    """A text with a mark in place of each character that a terminal would obey."""
    return text.translate(_SHOWN)


def is_wide(character: str) -> bool:
    """A character of Chinese or Japanese, its punctuation included: written without spaces."""
    return is_han(character) or "\u3000" <= character <= "\u30ff" or "\uff00" <= character <= "\uffef"


def is_han(character: str) -> bool:
    """One of the characters BERT splits off: the CJK blocks of its `BasicTokenizer`."""
    return character >= "\u3400" and (
        "\u4e00" <= character <= "\u9fff"
        or character <= "\u4dbf"
        or "\U00020000" <= character <= "\U0002ceaf"
        or "\uf900" <= character <= "\ufaff"
        or "\U0002f800" <= character <= "\U0002fa1f"
    )
