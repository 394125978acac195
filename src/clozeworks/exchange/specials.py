"""What their tokenizer must know of a model: the specials around a text, how long it may be, which inputs it has."""

from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import processors

from clozeworks.core import atomic_io
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.exchange.templates import has_segments
from clozeworks.recipe import Recipe
from clozeworks.tasks.template import InputTemplate

CONFIG = "tokenizer_config.json"


def write(directory: Path, tokenizer: Tokenizer, recipe: Recipe) -> None:
    """The tokenizer's files, by which `transformers` lays out a text as the model's task does."""
    task = recipe.task
    if task is not None:
        tokenizer = apply_template(tokenizer, task.template)
    tokenizer.save(directory)
    config: dict[str, Any] = {"model_input_names": ["input_ids", "token_type_ids", "attention_mask"]}
    if not has_segments(recipe):
        config["model_input_names"].remove("token_type_ids")
    config["model_max_length"] = recipe.length if task is None else min(task.template.length, recipe.length)
    if task is not None and task.template.summary == "last" and recipe.reading == "full":
        config["padding_side"] = "left"  # their class reads the last place of a row
    atomic_io.write_json(directory / CONFIG, tokenizer.config() | config)


def apply_template(tokenizer: Tokenizer, template: InputTemplate) -> Tokenizer:
    """The tokenizer that puts the specials of a template around texts."""
    if tokenizer.pair_template() == (template.opening, template.between, template.closing):
        return tokenizer
    names = dict.fromkeys((*template.opening, *template.between, *template.closing))
    inner = tokenizer.inner
    processor = processors.TemplateProcessing(
        single=_pattern(template, pair=False),
        pair=_pattern(template, pair=True),
        special_tokens=list(zip(names, template.ids(tokenizer, list(names)), strict=True)),
    )
    inner.post_processor = (
        processors.Sequence([processors.ByteLevel(), processor]) if _is_byte_level(inner) else processor
    )
    return Tokenizer(inner, tokenizer.names)


def _pattern(template: InputTemplate, pair: bool) -> list[str]:
    second = 1 if pair and template.segments else 0
    parts = [*template.opening, "$A:0", *([*template.between, f"$B:{second}"] if pair else [])]
    parts += [f"{name}:{second}" for name in template.closing]
    if template.own_segment is not None:
        at = 0 if template.summary == "first" else -1
        parts[at] = f"{parts[at].rpartition(':')[0] or parts[at]}:{template.own_segment}"
    return parts


def _is_byte_level(inner: tokenizers.Tokenizer) -> bool:
    """Whether a token may have the space before it, which is no part of the word."""
    return "ByteLevel" in str(inner.pre_tokenizer)
