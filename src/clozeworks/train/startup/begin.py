"""The model as a run begins with it."""

from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.exchange.bundle import Bundle
from clozeworks.exchange.char_vocab import spell
from clozeworks.model import Model
from clozeworks.recipe import Recipe, build
from clozeworks.starts.transfer import take_layers, transfer


def begin_model(
    recipe: Recipe, source: Model | None, teacher: Bundle | None, tokenizer: Tokenizer | None = None
) -> tuple[Model, list[str]]:
    """The model as a run begins with it, and what to tell of that: a source has the first word, then the teacher.

    A model that reads characters is told how the tokenizer's words are written.
    """
    model, distil = build(recipe), recipe.distil
    if source is not None:
        return model, transfer(source, model)
    notes = [] if tokenizer is None else spell(model, tokenizer)
    if teacher is None or distil is None or distil.start is None:
        return model, notes
    depth, of = recipe.encoder.stack.depth, teacher.recipe.encoder.stack.depth
    return model, [*notes, *take_layers(teacher.model, model, distil.layers(depth, of))]
