"""The input template of an encoder: read off its tokenizer."""

import copy

from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.nn.mixers.global_window import GlobalWindow
from clozeworks.objectives.segments import PairStream
from clozeworks.recipe import Recipe
from clozeworks.tasks.template import InputTemplate

LENGTH = 512  # of an example, however long a text the encoder can read
# The specials of a model that reads one way, by role: before a text, between two, behind all. [MASK] stands in no text
# that it was pretrained on. Where the tokenizer has none, those of the paper are added (`grow.add_template_tokens`).
ONE_WAY = {"cls": "_start_", "mask": "_delimiter_", "sep": "_classify_"}


def infer_template(recipe: Recipe, tokenizer: Tokenizer, whole: bool = True) -> InputTemplate:
    """The input template of the encoder's pretraining: read off its tokenizer, which puts specials around two, or
    off its segments where these put them elsewhere.

    Of a model that was fine-tuned elsewhere it need not be `whole`: specials that the tokenizer lacks were in no text.
    """
    causal, names = recipe.reading == "causal", tokenizer.names
    specials, last = None if causal else tokenizer.pair_template(), causal or tokenizer.class_last
    if isinstance(recipe.objective.segments, PairStream) and not last and specials is not None:
        opening, between, closing = specials
        specials, last = ((), between, (*closing, *opening)), True
    if specials is None and not whole:
        roles = ("cls", "mask" if causal else "sep", "sep")
        specials = [(names[role],) if role in names else () for role in roles]
    elif causal:
        specials = [(names.get(role, fresh),) for role, fresh in ONE_WAY.items()]
    elif specials is None:
        specials = [(tokenizer.token(tokenizer.need(role)),) for role in ("cls", "sep", "sep")]
    opening, between, closing = specials
    if recipe.opener == "sep":
        opening = closing
    if recipe.decoder is not None and recipe.task is not None:
        return copy.deepcopy(recipe.task.template)
    if recipe.decoder is not None:  # `Pairs`: nothing stands before a source
        opening, closing, last = (), between, True
    return fitting(InputTemplate(opening, between, closing, "last" if last else "first"), recipe)


def has_segments(recipe: Recipe) -> bool:
    """Whether the encoder tells two segments apart: by a table, or by a bias of its attention."""
    biases = (getattr(mixer, "bias", None) for mixer in recipe.encoder.stack.mixers())
    return recipe.encoder.embed.segments > 1 or any(getattr(bias, "segments", False) for bias in biases)


def fitting(template: InputTemplate, recipe: Recipe) -> InputTemplate:
    """These specials with what the encoder tells apart and has room for."""
    marks = any(isinstance(mixer, GlobalWindow) for mixer in recipe.encoder.stack.mixers())
    separate = has_segments(recipe)
    template.length = recipe.length if marks else min(recipe.length, LENGTH)
    template.segments, template.marks = separate, marks
    template.own_segment = 2 if separate and template.summary == "last" else None
    return template
