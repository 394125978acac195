"""What their tokenizer must know of a model: the specials around a text, how long it may be, what is told apart."""

from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import processors

from clozeworks.core import atomic_io
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.recipe import Recipe
from clozeworks.tasks.template import InputTemplate

CONFIG = "tokenizer_config.json"


def write(directory: Path, tokenizer: Tokenizer, recipe: Recipe) -> None:
    """The tokenizer's files, which lay out a text as the model's task does."""
    task = recipe.task
    if task is not None:
        tokenizer = laying(tokenizer, task.template)
    tokenizer.save(directory)
    told: dict[str, Any] = {"model_input_names": ["input_ids", "token_type_ids", "attention_mask"]}
    biases = (getattr(mixer, "bias", None) for mixer in recipe.encoder.stack.mixers())
    if recipe.encoder.embed.segments < 2 and not any(getattr(bias, "segments", False) for bias in biases):
        told["model_input_names"].remove("token_type_ids")
    told["model_max_length"] = recipe.length if task is None else min(task.template.length, recipe.length)
    if task is not None and task.template.summary == "last" and recipe.reading == "full":
        told["padding_side"] = "left"  # their class reads the last place of a row
    atomic_io.write_json(directory / CONFIG, tokenizer.config() | told)


def laying(tokenizer: Tokenizer, frame: InputTemplate) -> Tokenizer:
    """The tokenizer that puts the specials of a frame around texts."""
    if tokenizer.framed() == (frame.opening, frame.between, frame.closing):
        return tokenizer
    names = dict.fromkeys((*frame.opening, *frame.between, *frame.closing))
    inner = tokenizer.inner
    template = processors.TemplateProcessing(
        single=_pattern(frame, pair=False),
        pair=_pattern(frame, pair=True),
        special_tokens=list(zip(names, frame.ids(tokenizer, list(names)), strict=True)),
    )
    inner.post_processor = processors.Sequence([processors.ByteLevel(), template]) if _bytes(inner) else template
    return Tokenizer(inner, tokenizer.names)


def _pattern(frame: InputTemplate, pair: bool) -> list[str]:
    second = 1 if pair and frame.segments else 0
    parts = [*frame.opening, "$A:0", *([*frame.between, f"$B:{second}"] if pair else [])]
    parts += [f"{name}:{second}" for name in frame.closing]
    if frame.own_segment is not None:
        at = 0 if frame.summary == "first" else -1
        parts[at] = f"{parts[at].rpartition(':')[0] or parts[at]}:{frame.own_segment}"
    return parts


def _bytes(inner: tokenizers.Tokenizer) -> bool:
    """Whether a token may have the space before it, which is no part of the word."""
    return "ByteLevel" in str(inner.pre_tokenizer)
