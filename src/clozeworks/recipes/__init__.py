"""Named models. A recipe is a function that returns a fresh `Recipe`; a variant calls its base and changes lines."""

from collections.abc import Callable

from clozeworks.core.errors import InputError, suggest
from clozeworks.recipe import Recipe
from clozeworks.recipes import (
    adaptive_span,
    albert,
    awd_lstm,
    bert,
    cloze,
    distilbert,
    elmo,
    ernie,
    gpt,
    lite_transformer,
    longformer,
    nnlm,
    reformer,
    rnn_attention,
    roberta,
    spanbert,
    transformer,
    transformer_xl,
    xlnet,
)

FAMILIES = (
    bert,
    cloze,
    roberta,
    albert,
    spanbert,
    ernie,
    distilbert,
    elmo,
    awd_lstm,
    gpt,
    rnn_attention,
    transformer,
    lite_transformer,
    transformer_xl,
    adaptive_span,
    xlnet,
    longformer,
    reformer,
    nnlm,
)


def named() -> dict[str, Callable[[], Recipe]]:
    """Every recipe by name, in family order."""
    return {name: getattr(family, name) for family in FAMILIES for name in family.__all__}


def recipe(name: str) -> Recipe:
    """A fresh recipe; edit its fields."""
    known = named()
    if not isinstance(name, str):
        raise InputError("recipe", repr(name)[:60], "the name of a recipe is needed", "see clozeworks.recipes()")
    if name not in known:
        raise InputError("recipe", name, "no recipe of that name is known", suggest(name, known))
    return known[name]()
