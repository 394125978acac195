"""A table of words that begins as vectors that were trained before: the oldest form of pretraining.

Vectors are a beginning, as another model's weights are, so they are an option of a run and not of the recipe; that the
table never learns holds for as long as the model lives, so it is a field of the recipe (`Embed.frozen`).
"""

import hashlib

import numpy as np
import torch

from clozeworks.core.errors import InputError
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.model import Model
from clozeworks.nn.words import WordsLayer
from clozeworks.starts.transfer import digest
from clozeworks.vectors.table import Vectors


def describe_start(source: Model | None, words: Vectors | None) -> str | None:
    """A hash of what a run begins from, which is the same when it is resumed."""
    if words is None:
        return None if source is None else digest(source)
    total = hashlib.sha256("\n".join(words.words).encode())
    total.update(np.ascontiguousarray(words.table).tobytes())
    return total.hexdigest()


def begin_words(model: Model, tokenizer: Tokenizer, vectors: Vectors, seed: int) -> list[str]:
    """Rows of the table from the vectors of their tokens, exactly; the others N(mean, deviation) of those rows.

    Returns what to report: how many tokens have a vector.
    """
    layer = model.encoder.embed.words
    if not isinstance(layer, WordsLayer):
        needed = "one table of words is needed to begin from vectors"
        raise InputError(
            "--word-vectors", f"a model with {type(layer).__name__}", needed, "use encoder.embed.words=None"
        )
    if vectors.dim != layer.width:
        needed = f"the recipe's table of words has {layer.width}"
        todo = f"train vectors with --dim {layer.width}, or add --set encoder.embed.width={vectors.dim}"
        raise InputError("--word-vectors", f"vectors of {vectors.dim} numbers", needed, todo)
    places = match_words(tokenizer, vectors)
    known = np.flatnonzero(places >= 0)
    if not len(known):
        needed = "words of the tokenizer are needed"
        raise InputError(
            "--word-vectors", "none of its words is a token", needed, "prepare the text with --tokenizer words"
        )
    rows = vectors.table[places[known]]
    generator = np.random.default_rng((seed, len(rows)))
    table = generator.normal(rows.mean(), rows.std(), (layer.vocab, layer.width)).astype(np.float32)
    table[known] = rows
    with torch.no_grad():
        layer.table.weight.copy_(torch.from_numpy(table))
    plain = tokenizer.size - len(tokenizer.special_ids)
    return [f"{len(known):,} of {plain:,} tokens begin as vectors ({len(known) / plain:.1%}), the others by chance"]


def match_words(tokenizer: Tokenizer, vectors: Vectors) -> np.ndarray:
    """For each id the place of its vector, -1 where it has none: [tokens].

    A token is looked up as it is written, then among words as the tokenizer would write them, lower-cased where it
    lower-cases; of several the first, which is the most frequent.
    """
    places = np.full(tokenizer.size, -1, np.int64)
    inner = tokenizer.inner
    vocabulary: dict[str, int] = inner.get_vocab(with_added_tokens=True)
    tokens = {token: index for token, index in vocabulary.items() if index not in tokenizer.special_ids}
    for token, index in tokens.items():
        places[index] = vectors.places.get(token, -1)
    normalizer = inner.normalizer
    if normalizer is not None and len(tokens) > (places >= 0).sum():
        for place, word in enumerate(vectors.words):
            index = tokens.get(normalizer.normalize_str(word))
            if index is not None and places[index] < 0:
                places[index] = place
    return places
