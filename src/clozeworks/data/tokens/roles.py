"""Special tokens by role: what each is usually called."""

from collections.abc import Container, Mapping

ROLES = ("pad", "unk", "cls", "sep", "mask")
# The first name found in the vocabulary is taken. <cls> goes before <s>: where both exist, <s> has another use.
_USUAL = {
    "pad": ("[PAD]", "<pad>"),
    "unk": ("[UNK]", "<unk>"),
    "cls": ("[CLS]", "<cls>", "<s>"),
    "sep": ("[SEP]", "<sep>", "</s>"),
    "mask": ("[MASK]", "<mask>"),
}


def roles(vocabulary: Container[str], given: Mapping[str, str]) -> dict[str, str]:
    """The name of each role that the vocabulary has, the given names before the usual ones."""
    names = {}
    for role in ROLES:
        for name in (given.get(role), *_USUAL[role]):
            if name is not None and name in vocabulary:
                names[role] = name
                break
    return names
