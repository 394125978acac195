"""What kind of tokenizer a `tokenizers` object is, by its own description."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import tokenizers

from clozeworks.data.tokens.pieces import END, SPACE


@dataclass(frozen=True, slots=True)
class Facts:
    """Name, unit and case for screens, and how words that were added later are set apart when text is decoded."""

    name: str
    units: str
    case: str
    space_before: bool  # a space belongs to the word after it, so an added word takes it too
    apart: frozenset[int]  # added words, which lost the mark of a space
    space: int | None  # the piece that spells a space alone

    @property
    def keeps_spaces(self) -> bool:
        """Whether the spaces of a text can be known from its tokens."""
        return self.space_before or self.units == "characters"

    @classmethod
    def of(cls, tokenizer: tokenizers.Tokenizer) -> "Facts":
        """The facts of a tokenizer, whoever made it."""
        facts = json.loads(tokenizer.to_str())
        model, before = facts["model"], json.dumps(facts.get("pre_tokenizer"))
        kind, byte_level, spaced = model["type"], "ByteLevel" in before, "Metaspace" in before
        characters = kind == "BPE" and not model["merges"]
        suffix = kind == "BPE" and model.get("end_of_word_suffix") == END
        if kind == "WordLevel":
            name, units = "Words", "words"
        elif characters:
            name, units = "Characters", "characters"
        else:
            name, units = ("Byte-level BPE" if byte_level else kind), "pieces"
        normalizer = tokenizer.normalizer
        lower = normalizer is not None and normalizer.normalize_str("A").strip() == "a"
        space_before = byte_level or (spaced and not characters)
        added = {index for index, token in tokenizer.get_added_tokens_decoder().items() if not token.special}
        return cls(
            name,
            units,
            "lower-cased" if lower else "cased",
            space_before,
            frozenset(added) if space_before or suffix else frozenset(),
            tokenizer.token_to_id("Ġ" if byte_level else SPACE) if space_before else None,
        )

    def decode(self, tokenizer: tokenizers.Tokenizer, ids: Sequence[int], skip_specials: bool) -> str:
        """Text of ids; an added word, which has no mark of its own, gets its space back."""
        if self.apart.isdisjoint(ids):
            return tokenizer.decode(ids, skip_special_tokens=skip_specials)
        if self.space is not None:
            marked = [piece for index in ids for piece in ((self.space, index) if index in self.apart else (index,))]
            marked = marked[1:] if ids[0] in self.apart else marked
            return tokenizer.decode(marked, skip_special_tokens=skip_specials)
        parts: list[list[int]] = [[]]
        for index in ids:
            if index in self.apart:
                parts += [[index], []]
            else:
                parts[-1].append(index)
        texts = (tokenizer.decode(part, skip_special_tokens=skip_specials) for part in parts)
        return " ".join(text for text in texts if text)


def without_specials(tokenizer: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """A copy that takes a special token written in the text as text.

    A unigram model would still find `[MASK]` among its pieces, so there the copy spells them as no text does.
    """
    facts = json.loads(tokenizer.to_str())
    if facts["model"]["type"] == "Unigram":
        vocabulary = facts["model"]["vocab"]
        special = {token["content"] for token in facts["added_tokens"] if token["special"]}
        within = special.intersection(piece for piece, _ in vocabulary)
        facts["model"]["vocab"] = [[f" \0{piece}" if piece in within else piece, score] for piece, score in vocabulary]
        facts["added_tokens"] = [token for token in facts["added_tokens"] if token["content"] not in within]
        facts["post_processor"] = None
    plain = tokenizers.Tokenizer.from_str(json.dumps(facts))
    plain.encode_special_tokens = True
    return plain
