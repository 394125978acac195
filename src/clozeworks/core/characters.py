"""Classes of characters."""


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
