"""The model card: what the model is, what it read, what it reached."""

import contextlib
import json
from pathlib import Path
from typing import Any

from clozeworks.core import spec
from clozeworks.core.json_reader import parse_json, read_json
from clozeworks.recipe import Recipe, count_parameters

FILE = "README.md"
FACTS = "facts.json"
SENTENCES = "sentence-transformers"
PIPELINES = ("fill-mask", "text-classification", "token-classification")


def read_facts(directory: Path, step: int | None) -> dict[str, Any]:
    """What is known about a model directory or a run whose weights are those of a step, if any: metrics at that step or
    the last before it, and counts, no paths. Nothing is fine."""
    if (directory / FACTS).is_file():
        return _read_object(directory / FACTS)
    facts: dict[str, Any] = {}
    rows = _rows(directory / "metrics.jsonl")
    if step is not None:
        rows = [row for row in rows if isinstance(row.get("step"), int) and row["step"] <= step]
    heldout = [row for row in rows if row.get("split") == "heldout"]
    training = [row for row in rows if "split" not in row]
    if heldout:
        facts["heldout"] = {name: value for name, value in heldout[-1].items() if name != "split"}
    if training:
        facts["training"] = {name: training[-1][name] for name in ("step", "tokens", "loss") if name in training[-1]}
    if (directory / "run.json").is_file():
        with contextlib.suppress(AttributeError, KeyError, TypeError):  # a card may know less
            record = _read_object(directory / "run.json")
            counts = [entry.get("counts", {}) for entry in record.get("data", [])]
            facts["data"] = {name: sum(each[name] for each in counts) for name in (counts[0] if counts else {})}
    return facts


def _read_object(file: Path) -> dict[str, Any]:
    """What a file says; nothing where it cannot be read, since a card may know less."""
    try:
        return read_json(file, dict)
    except (OSError, ValueError):
        return {}


def _rows(file: Path) -> list[dict[str, Any]]:
    rows = []
    if file.is_file():
        for line in file.read_bytes().splitlines():
            with contextlib.suppress(ValueError):
                rows.append(parse_json(line, dict))
    return rows


def write(directory: Path, recipe: Recipe, facts: dict[str, Any], format: str) -> None:
    if facts:
        (directory / FACTS).write_text(json.dumps(facts, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    (directory / FILE).write_text(text(recipe, facts, format), encoding="utf-8")


def text(recipe: Recipe, facts: dict[str, Any], format: str) -> str:
    """The card in Markdown: metadata of the hub, what the model is, how it is loaded, metrics, and its recipe."""
    losses = ", ".join(type(loss).__name__ for loss in recipe.objective.losses) or "none (bare encoder)"
    encoder = recipe.encoder
    heads = {loss.name for loss in recipe.objective.losses}
    fills = bool(heads & {"masked_lm", "permuted_lm"})
    writes = ["- translation"] if recipe.decoder else ["- text-generation"]
    use = recipe.task.pipeline_tag if recipe.task else "sentence-similarity" if format == SENTENCES else None
    uses = [f"- {use}"] if use else ["- fill-mask"] if fills else writes if "next_token" in heads else []
    what = "An encoder" if recipe.decoder is None else "An encoder and a decoder"
    tags = ["tags:", "- clozeworks", *uses]
    taught = [type(loss).__name__ for loss in recipe.objective.losses if "teacher" in loss.needs.reads]
    absent = f" Not in this directory, since they served distillation alone: {', '.join(taught)}."
    lines = [
        "---",
        "library_name: " + {"hf": "transformers", "static": "clozeworks"}.get(format, format),
        *tags,
        "---",
        "",
        f"# {recipe.name}",
        "",
        f"{what} of {count_parameters(recipe):,} parameters: {encoder.stack.depth} layers, width {encoder.width}, "
        f"vocabulary {encoder.vocab:,}. {'Fine-tuned for' if recipe.task else 'Pretrained with'}: {losses}."
        + (absent if taught and format == "hf" else ""),
        "",
        "```python",
        *_usage(format, "fill-mask" if "masked_lm" in heads and not use else use),
        "```",
        "",
    ]
    for title, key in (("Held-out metrics", "heldout"), ("Training", "training"), ("Data", "data")):
        values = facts.get(key)
        if values:
            lines += [f"## {title}", "", "| | |", "|---|---|"]
            lines += [
                f"| {name} | {_shown(value)} |" for name, value in values.items() if not isinstance(value, (dict, list))
            ]
            lines += [""]
    lines += ["## Recipe", "", "```json", json.dumps(spec.to_dict(recipe), indent=2), "```", ""]
    return "\n".join(lines)


def _usage(format: str, use: str | None) -> list[str]:
    """The first two lines that one writes."""
    if format == "onnx":  # as `exchange.onnx.write` makes it; onnx.json says what goes in and what comes out
        about = "# opset 18, axes [batch, length] free; see onnx.json"
        return ["import onnxruntime", f'onnxruntime.InferenceSession("PATH/model.onnx")  {about}']
    if format == "model2vec":
        return ["from model2vec import StaticModel", 'StaticModel.from_pretrained("PATH").encode(["..."])']
    if format == SENTENCES:
        return ["from sentence_transformers import SentenceTransformer", 'SentenceTransformer("PATH").encode(["..."])']
    if format == "hf" and use in PIPELINES:
        return ["from transformers import pipeline", f'pipeline("{use}", model="PATH")']
    return ["import clozeworks as cw", 'enc = cw.load("PATH")']


def _shown(value: object) -> str:
    return f"{value:,.4g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
