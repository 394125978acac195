"""How words are written, for models that read their characters: those of a vocabulary, and any others."""

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.model import Model
from clozeworks.nn.characters import CharactersLayer, spelled


def spell(model: Model, tokenizer: Tokenizer) -> list[str]:
    """Tell a model that reads characters how the words of its tokenizer are written; a note on those that are cut."""
    words = model.encoder.embed.words
    if not isinstance(words, CharactersLayer):
        return []
    names = [tokenizer.token(number) for number in range(tokenizer.size)]
    long, most = words.spell(names, tokenizer.cls, tokenizer.sep), words.length - 2
    return [f"of {len(long):,} words the first {most} bytes count, such as {long[0][:60]}"] if long else []


def extend_vocabulary(model: Model, tokenizer: Tokenizer, texts: Sequence[str]) -> tuple[Model, Tokenizer]:
    """The same model and tokenizer, and where the model reads characters, with every word of the texts known to both.

    No weight is added or changed: words that nobody has counted are read as they are written, and cannot be predicted.
    """
    words = model.encoder.embed.words
    fresh = tokenizer.unknown(texts) if isinstance(words, CharactersLayer) and texts else []
    if not fresh:
        return model, tokenizer
    assert isinstance(words, CharactersLayer)
    more = torch.from_numpy(spelled(fresh, words.length, {})[0]).to(words.spelling.device)
    known = words.spelling[: tokenizer.size]
    larger = _other(words, _parameters={"spelling": nn.Parameter(torch.cat([known, more]), requires_grad=False)})
    embed = _other(model.encoder.embed, _modules={"words": larger})
    return _other(model, _modules={"encoder": _other(model.encoder, _modules={"embed": embed})}), tokenizer.learn(fresh)


def _other(module: Any, **parts: Mapping[str, Any]) -> Any:
    """A module with the same parts but for some; what it is made of is shared, not copied."""
    other = copy.copy(module)
    for kind, changed in parts.items():
        other.__dict__[kind] = {**module.__dict__[kind], **changed}
    return other


def collect_texts(rows: Iterable[Mapping[str, Any]], columns: Iterable[str]) -> list[str]:
    """What stands in these columns, be it texts or lists of words."""
    columns, texts = tuple(columns), list[str]()
    for row in rows:
        for name in columns:
            value = row.get(name)
            texts += [value] if isinstance(value, str) else [str(each) for each in value or ()]
    return texts
