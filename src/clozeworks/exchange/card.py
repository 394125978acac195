"""The model card: what the model is, what it read, what it reached."""

import contextlib
import json
from pathlib import Path
from typing import Any

from clozeworks import spec
from clozeworks.pretraining import Recipe, count_parameters

FILE = "README.md"
FACTS = "facts.json"


def read_facts(directory: Path) -> dict[str, Any]:
    """What is known about a model directory or a run: figures and counts, no paths. Nothing is fine."""
    if (directory / FACTS).is_file():
        return json.loads((directory / FACTS).read_text(encoding="utf-8"))
    facts: dict[str, Any] = {}
    rows = _rows(directory / "metrics.jsonl")
    heldout = [row for row in rows if row.get("split") == "heldout"]
    training = [row for row in rows if "split" not in row]
    if heldout:
        facts["heldout"] = {name: value for name, value in heldout[-1].items() if name != "split"}
    if training:
        facts["training"] = {name: training[-1][name] for name in ("step", "tokens", "loss") if name in training[-1]}
    if (directory / "run.json").is_file():
        with contextlib.suppress(ValueError, AttributeError, KeyError, TypeError):  # a card may know less
            record = json.loads((directory / "run.json").read_text(encoding="utf-8"))
            counts = [entry.get("counts", {}) for entry in record.get("data", [])]
            facts["data"] = {name: sum(each[name] for each in counts) for name in (counts[0] if counts else {})}
    return facts


def _rows(file: Path) -> list[dict[str, Any]]:
    if not file.is_file():
        return []
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line.endswith("}")]


def write(directory: Path, recipe: Recipe, facts: dict[str, Any], format: str) -> None:
    if facts:
        (directory / FACTS).write_text(json.dumps(facts, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    (directory / FILE).write_text(text(recipe, facts, format), encoding="utf-8")


def text(recipe: Recipe, facts: dict[str, Any], format: str) -> str:
    losses = ", ".join(type(loss).__name__ for loss in recipe.objective.losses) or "none (bare encoder)"
    encoder = recipe.encoder
    heads = {loss.name for loss in recipe.objective.losses}
    fills = bool(heads & {"masked_lm", "permuted_lm"})
    uses = ["- fill-mask"] if fills else ["- text-generation"] if "next_token" in heads else []
    tags = ["tags:", "- clozeworks", *uses]
    taught = [type(loss).__name__ for loss in recipe.objective.losses if "teacher" in loss.reads]
    absent = f" Not in this directory, since they served distillation alone: {', '.join(taught)}."
    lines = [
        "---",
        "library_name: " + ("transformers" if format == "hf" else "clozeworks"),
        *tags,
        "---",
        "",
        f"# {recipe.name}",
        "",
        f"An encoder of {count_parameters(recipe):,} parameters: {encoder.stack.depth} layers, width {encoder.width}, "
        f"vocabulary {encoder.vocab:,}. Pretrained with: {losses}." + (absent if taught and format == "hf" else ""),
        "",
        "```python",
        *(
            ["from transformers import pipeline", 'pipeline("fill-mask", model="PATH")']
            if format == "hf" and "masked_lm" in heads
            else ["import clozeworks as cw", 'enc = cw.load("PATH")']
        ),
        "```",
        "",
    ]
    for title, key in (("Held-out figures", "heldout"), ("Training", "training"), ("Data", "data")):
        values = facts.get(key)
        if values:
            lines += [f"## {title}", "", "| | |", "|---|---|"]
            lines += [
                f"| {name} | {_shown(value)} |" for name, value in values.items() if not isinstance(value, (dict, list))
            ]
            lines += [""]
    lines += ["## Recipe", "", "```json", json.dumps(spec.to_dict(recipe), indent=2), "```", ""]
    return "\n".join(lines)


def _shown(value: object) -> str:
    return f"{value:,.4g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
