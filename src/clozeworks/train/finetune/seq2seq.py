"""A recipe that writes, made of the recipe of an encoder."""

import copy
import dataclasses

from clozeworks.core.errors import InputError, RecipeError
from clozeworks.core.spec import walk
from clozeworks.exchange.bundle import Bundle
from clozeworks.nn.block import Block
from clozeworks.nn.decoder import Decoder
from clozeworks.nn.mixers.attention import Attention
from clozeworks.recipe import Recipe, build
from clozeworks.starts.transfer import transfer
from clozeworks.tasks.generation import Generation


def add_decoder(recipe: Recipe, generation: Generation, decoder: Recipe | None = None) -> None:
    """Give the recipe what the form of the task needs: a decoder, of the encoder's own stack or another's."""
    recipe.encoder.stack.memory = 0  # a source is read whole
    if generation.architecture != "decoder":
        if decoder is not None:
            given, needed = (
                f"--architecture {generation.architecture} and a decoder",
                "one stack reads and writes there",
            )
            raise InputError(recipe.name, given, needed, "use --architecture decoder")
        return
    if recipe.decoder is None or decoder is not None:
        recipe.decoder = make_decoder(recipe, decoder or recipe, generation.share)
    elif recipe.decoder.start is not None or recipe.decoder.end is not None:
        needed = "a target begins after [CLS] and ends with [SEP]"
        raise RecipeError(f"{recipe.name}.decoder", "other tokens", needed, "use start=None and end=None")
    recipe.objective.corruption = None  # rows are read as they are


def make_decoder(recipe: Recipe, other: Recipe, share: bool) -> Decoder:
    """The stack of an encoder that reads one way and across to a source, as wide and of the same vocabulary."""
    for name in ("width", "vocab"):
        mine, theirs = getattr(recipe.encoder, name), getattr(other.encoder, name)
        if mine != theirs:
            needed = f"the encoder has {mine:,}, and both must be alike"
            raise InputError(f"{other.name}.encoder.{name}", theirs, needed, "take another decoder")
    stack = copy.deepcopy(other.encoder.stack)
    blocks = stack.block if isinstance(stack.block, tuple) else (stack.block,)
    blocks = tuple(_add_cross_attention(block, f"{other.name}.encoder.stack.block") for block in blocks)
    stack.block, stack.memory = blocks if isinstance(stack.block, tuple) else blocks[0], 0
    return Decoder(stack, None if share else copy.deepcopy(other.encoder.embed))


def _add_cross_attention(block: Block, where: str) -> Block:
    heads = [
        (part.heads, part.dropout, part.head_width) for _, part in walk(block.mixer) if isinstance(part, Attention)
    ]
    heads += [(getattr(part, "heads", 0), getattr(part, "dropout", 0.0), None) for _, part in walk(block.mixer)]
    shape = next((shape for shape in heads if shape[0]), None)
    if shape is None:
        needed = "it has no heads that attention to a source could be made after"
        raise RecipeError(f"{where}.mixer", type(block.mixer).__name__, needed, "take another decoder")
    count, rate, size = shape
    return dataclasses.replace(block, cross=Attention(count, rate, head_width=size))


def join_models(recipe: Recipe, encoder: Bundle, decoder: Bundle) -> tuple[Bundle, list[str]]:
    """Encoder and decoder from two models, as one that a run begins from, and what to say of that."""
    if encoder.tokenizer and decoder.tokenizer and encoder.tokenizer.fingerprint != decoder.tokenizer.fingerprint:
        given, needed = f"another tokenizer than that of {encoder.recipe.name}", "both sides have one vocabulary"
        raise InputError(decoder.recipe.name, given, needed, "take a decoder pretrained with the same tokenizer")
    model = build(recipe)
    notes = transfer(encoder.model, model, decoder.model)
    return Bundle(model, encoder.tokenizer, recipe), notes
