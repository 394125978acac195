"""Train every small recipe on the same text, and compare them in one table.

    python examples/family.py corpus.txt --lang en --minutes 10 --out family
    python examples/family.py zh.txt --lang zh --steps 2000 --out family-zh --set objective.segments.length=32

The text is prepared once. Each recipe that ends in _mini gets a run of its own, as long as the others; one that learns
from a teacher gets the run of bert_mini, which comes first. A recipe whose needs the text does not meet (annotated
phrases, two-sided text) is left out, with the reason. Interrupted? The same command continues. At the end there is one
table, and measured.json, from which the recipes' pages tell what to expect. Minutes there are the processor's: they do
not depend on what else the machine was doing.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import clozeworks as cw
from clozeworks.core import spec

TEACHER = "bert_mini"
PROBE = 8  # steps that tell how long one takes
ACCURACIES = ("masked_accuracy", "next_accuracy", "permuted_accuracy")
COLUMNS = ("recipe", "parameters", "steps", "tokens", "minutes", "accuracy", "baseline")


def main() -> int:
    options = arguments()
    out = Path(options.out)
    data = out / "data"
    names = options.recipes or [name for name in cw.recipes() if name.endswith("_mini")]
    try:
        if not (data / "manifest.json").exists():
            made = {"tokenizer": options.tokenizer} if options.tokenizer else {}
            cw.prepare(options.text, data, lang=options.lang, vocab=options.vocab, heldout=options.heldout, **made)
        results, skipped = {}, {}
        for name in sorted(names, key=lambda name: name != TEACHER):
            figures = trained(name, options, out)
            (skipped if isinstance(figures, str) else results)[name] = figures
    except cw.InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    print(table(results))
    for name, reason in skipped.items():
        print(f"{name}: left out, {reason}")
    label = f"{options.lang}, {options.tokenizer}" if options.tokenizer else options.lang
    remember(out / "measured.json", label, results)
    print(f"\nwrote  {out / 'measured.json'}")
    return 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train every small recipe on the same text, and compare them.")
    parser.add_argument("text", nargs="+", help="text files, as `clozeworks prepare` takes them")
    parser.add_argument("--lang", choices=("en", "zh"), required=True, help="of the text")
    length = parser.add_mutually_exclusive_group(required=True)
    length.add_argument("--minutes", type=float, help="of training for each recipe")
    length.add_argument("--steps", type=int, help="of training for each recipe")
    parser.add_argument("--out", required=True, help="where everything goes")
    parser.add_argument("--vocab", type=int, default=8192, help="pieces of the tokenizer (8192)")
    parser.add_argument("--tokenizer", help="as in `clozeworks prepare`: chars, bpe ...")
    parser.add_argument("--heldout", type=float, default=0.02, help="share of the documents to evaluate on (0.02)")
    parser.add_argument(
        "--set",
        nargs="+",
        default=[],
        metavar="PATH=VALUE",
        help="change fields of every recipe, as in `pretrain --set`",
    )
    parser.add_argument("--recipes", nargs="+", help="these alone")
    return parser.parse_args()


def trained(name: str, options: argparse.Namespace, out: Path) -> dict[str, Any] | str:
    """Train one recipe, or resume it: its figures, or why the text does not suit it."""
    data, run = out / "data", out / name
    recipe = cw.recipe(name)
    for change in options.set:
        spec.set_path(recipe, *change.split("=", 1))
    more, teacher = {}, ""
    if any("teacher" in loss.needs.reads for loss in recipe.objective.losses):
        if not (out / TEACHER).is_dir():
            return f"its teacher, {TEACHER}, is not trained"
        more, teacher = {"teacher": out / TEACHER}, f" --teacher {TEACHER}"
    new = not run.exists()
    try:
        recipe.train.steps = options.steps or steps_for(options.minutes, recipe, out, more)
        recipe.train.evaluate_every = recipe.train.steps
        result = cw.pretrain(recipe, data, run, **more)
    except cw.InputError as error:
        if new and not run.exists():  # it was refused before anything was written
            return str(error)
        raise
    if not result.finished:
        raise KeyboardInterrupt
    figures = cw.evaluate(run, data)
    command = f"clozeworks pretrain {name} --data data --out {name}{teacher} --set train.steps={result.steps}"
    command += "".join(f" --set {change}" for change in options.set)
    spent = {"bits_per_character": round(bits, 3)} if (bits := figures.get("bits_per_character")) else {}
    return {
        "parameters": cw.count_parameters(cw.load(run).recipe),
        "steps": result.steps,
        "tokens": result.tokens,
        "minutes": round(processor_minutes(run), 2),
        "accuracy": round(next((figures[name] for name in ACCURACIES if name in figures), 0.0), 4),
        "unigram": round(figures["unigram_accuracy"], 4),
        "command": command,
        **spent,
    }


def processor_minutes(run: Path) -> float:
    """What all steps took of the processors, by the run's own metrics."""
    seconds = before = 0.0
    for line in (run / "metrics.jsonl").read_text().splitlines():
        row = json.loads(line)
        if "tokens_per_cpu_second" in row:
            seconds += (row["tokens"] - before) / row["tokens_per_cpu_second"]
            before = row["tokens"]
    return seconds / 60


def steps_for(minutes: float, recipe: Any, out: Path, more: dict[str, Any]) -> int:
    """As many steps as the minutes hold, by a short run; remembered, since a resumed run must not change it."""
    file = out / "steps.json"
    known = json.loads(file.read_text()) if file.exists() else {}
    if recipe.name not in known:
        recipe.train.steps, recipe.train.warmup = PROBE, 0.05
        recipe.train.evaluate_every = PROBE
        probe = cw.pretrain(recipe, out / "data", out / "probes" / recipe.name, progress=False, **more)
        known[recipe.name] = max(1, round(60 * minutes * PROBE / probe.seconds))
        file.write_text(json.dumps(known, indent=1))
    return known[recipe.name]


def table(results: dict[str, dict[str, Any]]) -> str:
    rows: list[tuple[str, ...]] = [COLUMNS]
    for name, each in results.items():
        counts = (f"{each[key]:,}" for key in ("parameters", "steps", "tokens"))
        rows.append((name, *counts, f"{each['minutes']:.1f}", f"{each['accuracy']:.1%}", f"{each['unigram']:.1%}"))
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    lines = (
        "  ".join(cell.rjust(width) if column else cell.ljust(width) for column, (cell, width) in enumerate(cells))
        for cells in (tuple(zip(row, widths, strict=True)) for row in rows)
    )
    return "\n".join(lines)


def remember(file: Path, label: str, results: dict[str, dict[str, Any]]) -> None:
    """Put the figures beside those of other languages and tokenizers."""
    known = json.loads(file.read_text()) if file.exists() else {}
    for name, figures in results.items():
        known.setdefault(name, {})[label] = figures
    file.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    sys.exit(main())
