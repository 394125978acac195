"""Directories of sentence-transformers: a model of Hugging Face's, and files that say how a text becomes one vector."""

import json
from pathlib import Path
from typing import Any

from clozeworks.core import atomic_io, spec
from clozeworks.core.errors import InputError, RecipeError
from clozeworks.core.json_reader import read_json
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.nn.pooling import Pooling, PoolingMode
from clozeworks.recipe import Recipe

MODULES, LENGTH, PROMPTS = "modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"
TYPES = "sentence_transformers.models."
POOLS: dict[str, PoolingMode] = {"cls": "first", "mean": "mean", "max": "max"}
FLAGS = {  # as older versions wrote them
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}


def read(directory: Path, tokenizer: Tokenizer | None) -> Pooling:
    """How vectors are made; what no part here does is refused."""
    modules = _read_modules(directory)
    kinds = [str(module.get("type", "")).rpartition(".")[2] for module in modules]
    if kinds not in (["Transformer"], ["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        needed = "Transformer, Pooling and Normalize are supported, in this order"
        raise InputError(directory / MODULES, f"modules {', '.join(kinds)}", needed, "choose another model")
    config = _read_json(directory / modules[1]["path"] / "config.json") if len(modules) > 1 else {}
    shape, prompts = _read_json(model_in(directory) / LENGTH), _read_json(directory / PROMPTS)
    texts, name = prompts.get("prompts") or {}, prompts.get("default_prompt_name")
    prompt = texts.get(name, "") if isinstance(texts, dict) and isinstance(name, str | None) else None
    if not isinstance(prompt, str):
        raise InputError(directory / PROMPTS, "prompts that are no texts", "a text by its name", "copy it again")
    if shape.get("do_lower_case") and tokenizer is not None and not tokenizer.lowercase:
        needed = "the tokenizer keeps capitals"
        raise InputError(directory / LENGTH, "do_lower_case", needed, "give it texts without any, and set it to false")
    if prompt and config.get("include_prompt") is False:
        needed = "tokens of the prompt count like others here"
        raise InputError(directory / modules[1]["path"], "include_prompt false", needed, "choose another model")
    pool = _read_mode(config, directory / modules[1]["path"]) if config else "mean"
    pooling = Pooling(pool, len(modules) > 2, shape.get("max_seq_length"), prompt)
    spec.check(pooling, f"{directory / LENGTH}: pooling")
    return pooling


def model_in(directory: Path) -> Path:
    """Where the model itself is."""
    return directory / _read_modules(directory)[0]["path"]


def write(directory: Path, recipe: Recipe) -> None:
    """The files beside the model's."""
    pooling = recipe.pooling or Pooling()
    theirs = {ours: name for name, ours in POOLS.items()}
    if pooling.mode not in theirs:
        needed = f"sentence-transformers has {', '.join(theirs)}"
        raise RecipeError(f"{recipe.name}.pooling.mode", pooling.mode, needed, "choose one, or keep its own format")
    kinds = {"Transformer": "", "Pooling": "1_Pooling"} | ({"Normalize": "2_Normalize"} if pooling.normalise else {})
    modules = [
        {"idx": at, "name": str(at), "path": path, "type": TYPES + kind}
        for at, (kind, path) in enumerate(kinds.items())
    ]
    for path in kinds.values():
        (directory / path).mkdir(exist_ok=True)
    (directory / MODULES).write_text(json.dumps(modules, indent=2) + "\n", encoding="utf-8")
    flags = {flag: mode == theirs[pooling.mode] for flag, mode in FLAGS.items()}
    width = recipe.encoder.stack.out_width(recipe.encoder.width)
    config = {"word_embedding_dimension": width, **flags, "include_prompt": True}
    atomic_io.write_json(directory / kinds["Pooling"] / "config.json", config)
    atomic_io.write_json(
        directory / LENGTH, {"max_seq_length": pooling.length or recipe.length, "do_lower_case": False}
    )
    prompts = {"prompts": {"default": pooling.prompt}, "default_prompt_name": "default"} if pooling.prompt else {}
    atomic_io.write_json(directory / PROMPTS, {**prompts, "similarity_fn_name": "cosine"})
    if pooling.normalise:
        atomic_io.write_json(directory / kinds["Normalize"] / "config.json", {})


def _read_modules(directory: Path) -> list[dict[str, Any]]:
    """The modules that a text goes through, each with a path below the directory."""
    modules = _read_json(directory / MODULES, list)
    for module in modules or [None]:
        path = module.get("path") if isinstance(module, dict) else None
        if not isinstance(path, str) or "\0" in path or Path(path).is_absolute() or ".." in Path(path).parts:
            needed = "each has a path below the directory"
            raise InputError(directory / MODULES, "no list of modules", needed, "copy the directory again")
    return modules


def _read_mode(config: dict[str, Any], where: Path) -> PoolingMode:
    given = config.get("pooling_mode") or [mode for flag, mode in FLAGS.items() if config.get(flag)] or "mean"
    modes = [given] if isinstance(given, str) else list(given) if isinstance(given, list) else [repr(given)]
    if len(modes) != 1 or modes[0] not in [*POOLS]:
        needed = f"one of {', '.join(POOLS)} is supported"
        raise InputError(where, f"pooling by {' and '.join(map(str, modes))}", needed, "choose another model")
    return POOLS[modes[0]]


def _read_json(file: Path, shape: type = dict) -> Any:
    """What a file says, of the shape that is needed; nothing where there is none."""
    try:
        return read_json(file, shape) if file.is_file() else shape()
    except ValueError as error:
        raise InputError(file, f"unreadable ({error})", "JSON is needed", "copy it again") from None
