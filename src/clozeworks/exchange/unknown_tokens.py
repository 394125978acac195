"""How much of a text a model cannot read: tokens that its tokenizer does not know."""

from collections.abc import Sequence

import numpy as np

from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.model import Model
from clozeworks.nn.characters import CharactersLayer

MANY = 0.05  # share of the tokens from which a user hears of it
TEXTS = 1_000  # that are looked at, from all over


def describe_unknown(model: Model, tokenizer: Tokenizer, texts: Sequence[str]) -> str | None:
    """One sentence where more than 5 % of the tokens of these texts are unknown; None where it is well, or where the
    model reads the characters of any word."""
    if tokenizer.unk is None or isinstance(model.encoder.embed.words, CharactersLayer):
        return None
    sample = [text for text in texts[:: -(-len(texts) // TEXTS) or 1] if text]
    if not sample:
        return None
    ids = np.concatenate([encoding.ids for encoding in tokenizer.encode(sample)])
    share = float(np.mean(ids == tokenizer.unk)) if len(ids) else 0.0
    if share <= MANY:
        return None
    todo = "take a model of the language of these texts, or pretrain one on text like them"
    return f"{share:.0%} of the tokens are {tokenizer.token(tokenizer.unk)}: the model cannot read them; {todo}"
