"""Longformer's names and config: RoBERTa's, a window for each layer, and projections of their own for global tokens.

Their `attention_window` counts both sides of a token, ours one. Their positions begin at the padding id + 1.
"""

import copy
import dataclasses
from typing import Any

from clozeworks.core.errors import InputError, RecipeError
from clozeworks.exchange.names import Family, bert, roberta
from clozeworks.nn.block import Block
from clozeworks.nn.mixers.attention import Attention
from clozeworks.nn.mixers.global_window import GlobalWindow
from clozeworks.nn.positions import LearnedPositions
from clozeworks.nn.window import Window
from clozeworks.recipe import Recipe

HEADS: dict[str, tuple[str, ...]] = {"LongformerForMaskedLM": ("masked_lm",), "LongformerModel": ()}
LAYER, BLOCK = "longformer.encoder.layer.{i}.attention.self.", "encoder.stack.blocks.{i}.mixer."
NAMES = (
    *bert.encoder_names("longformer."),
    *((BLOCK + name, LAYER + name) for name in ("query_global", "key_global", "value_global")),
    *roberta.HEAD_NAMES,
    ("heads.sentence_pair.out", "cls.seq_relationship"),  # no class of theirs has it: they leave it where it is
)


def read(config: dict[str, Any], losses: tuple[str, ...]) -> Recipe:
    """RoBERTa's recipe with a window in each layer; BERT's objective where the file has the head of sentence pairs."""
    config = {"pad_token_id": 1, "attention_window": 512} | config
    recipe = roberta.read(config, ("masked_lm",) if "masked_lm" in losses else ())
    recipe.name = "longformer"
    if "sentence_pair" in losses:
        positions = recipe.encoder.embed.positions
        assert isinstance(positions, LearnedPositions)
        as_bert = {"max_position_embeddings": positions.length, "hidden_act": "gelu"}
        recipe.objective = bert.read(config | as_bert, losses).objective
    stack, given = recipe.encoder.stack, config["attention_window"]
    windows = [given] * stack.depth if isinstance(given, int) else list(given)
    if len(windows) != stack.depth or any(window < 2 or window % 2 for window in windows):
        needed = f"an even window for each of {stack.depth} layers is needed"
        raise InputError("config.json", f"attention_window {given}", needed, "take the whole config")
    stack.block = tuple(near(stack.block_at(0), Window(window // 2)) for window in windows)
    return recipe


def near(block: Block, window: Window) -> Block:
    """The same layer, which looks through a window."""
    assert isinstance(block.mixer, Attention)
    mixer = GlobalWindow(block.mixer.heads, window, block.mixer.dropout, block.mixer.head_width)
    return dataclasses.replace(copy.deepcopy(block), mixer=mixer)


def write(recipe: Recipe) -> dict[str, Any]:
    windows, plain = _split_windows(recipe)
    bert.check_head(plain, "gelu")
    config = roberta.write_encoder(plain) | {"attention_window": windows}
    del config["position_embedding_type"]
    return {"model_type": "longformer", "architectures": [bert.class_of(recipe, HEADS, ("sentence_pair",))], **config}


def _split_windows(recipe: Recipe) -> tuple[list[int], Recipe]:
    """Their windows, and the recipe without any."""
    recipe = copy.deepcopy(recipe)
    stack, corruption = recipe.encoder.stack, recipe.objective.corruption
    blocks = [copy.deepcopy(stack.block_at(layer)) for layer in range(stack.depth)]
    windows = []
    for layer, block in enumerate(blocks):
        where, mixer = f"stack.block.{layer}.mixer", block.mixer
        if not isinstance(mixer, GlobalWindow):
            raise _refusal(recipe, where, type(mixer).__name__, "every layer has global tokens and a window there")
        window = mixer.window
        if window.after != window.left:
            raise _refusal(recipe, f"{where}.window.right", window.after, "both sides are equal there")
        if window.left < 2:  # with one token a side its cutting into chunks fails
            raise _refusal(recipe, f"{where}.window.left", window.left, "a window has at least two tokens a side there")
        if set(window.dilation if isinstance(window.dilation, tuple) else (window.dilation,)) != {1}:
            raise _refusal(recipe, f"{where}.window.dilation", window.dilation, "windows have no gaps there")
        windows.append(2 * window.left)
        block.mixer = Attention(mixer.heads, mixer.dropout, head_width=mixer.head_width)
    if any(max(windows) % window for window in windows):
        given = f"windows of {', '.join(map(str, windows))}"
        raise _refusal(recipe, "stack.block", given, "every window divides the widest there")
    if corruption is not None and corruption.kind != "full":
        needed, todo = "the Hugging Face class looks both ways", "keep the model in its own format"
        raise RecipeError(f"{recipe.name}.objective.corruption", type(corruption).__name__, needed, todo)
    stack.block = tuple(blocks)
    return windows, recipe


def _refusal(recipe: Recipe, path: str, value: object, needed: str) -> RecipeError:
    return RecipeError(f"{recipe.name}.encoder.{path}", value, needed, "keep the model in its own format")


FAMILY = Family(
    model_type="longformer",
    names=NAMES,
    tied=roberta.TIED,
    prefix="longformer.",
    read=read,
    write=write,
    heads=roberta.task_heads("Longformer", None),
    template=roberta.TEMPLATE,
)
