"""`clozeworks evaluate MODEL --against OTHER`: both on the same rows, or on the same masks of held-out text."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from clozeworks.cli.arguments import refuse_given
from clozeworks.cli.evaluate_options import Options, check_task_options, limit_task, read_test
from clozeworks.cli.paths import existing
from clozeworks.core.errors import InputError

if TYPE_CHECKING:
    from clozeworks.evaluate.against import Comparison
    from clozeworks.inference.text_encoder import TextEncoder

ONE = ("report", "context", "stride", "max_tokens")  # options about one model


def run(options: Options, encoder: TextEncoder) -> None:
    """Measure both, and say what they differ by."""
    from clozeworks.cli import named
    from clozeworks.screen.comparison import as_json, show_comparison
    from clozeworks.screen.console import closing, emit, screen

    assert options.against is not None
    refuse_given(options, ONE, "it is about one model", "leave it out, or --against")
    other = named.model(options.against, options.parts, options.allow_pickle, options.device)
    if (encoder.recipe.task is None) != (other.recipe.task is None):
        given = [each.recipe.task.name if each.recipe.task else "no task" for each in (encoder, other)]
        needed, todo = "both must be of one kind", "compare two fine-tuned models, or two pretrained ones"
        raise InputError("--against", f"{given[0]} and {given[1]}", needed, todo)
    with screen(stderr=True).status("reading"):
        result, about = measure_both(options, encoder, other)
    if options.json:
        emit({"model": options.model, "against": options.against, **about, **as_json(result)})
        return
    console = screen()
    what = f"{result.examples:,} rows of {options.test or options.data}"
    count = f", {result.facts['count']:,} predictions under the same masks" if "count" in result.facts else ""
    console.print(f"{what}{count}\n", soft_wrap=True)
    show_comparison(console, result, options.model, options.against)
    test = f"--test {shlex.quote(options.test)}" if options.test else f"--data {shlex.quote(str(options.data))}"
    closing(console, None, f"clozeworks evaluate {shlex.quote(options.against)} {test}")


def measure_both(options: Options, encoder: TextEncoder, other: TextEncoder) -> tuple[Comparison, dict[str, Any]]:
    """By a task's answers, by translations, or by held-out text."""
    from clozeworks.data.shards.corpus import Corpus
    from clozeworks.evaluate.against import compare_text
    from clozeworks.evaluate.text import adapt

    if encoder.recipe.task is not None:
        return measure_answers(options, encoder, other)
    refuse_given(options, ("columns",), "it is about labelled rows, and the models have no task", "leave it out")
    encoder, other = (adapt(each, options.max_length, options.memory, options.rounds) for each in (encoder, other))
    if encoder.recipe.decoder is not None or options.test is not None:
        return measure_translations(options, encoder, other)
    refuse_given(options, ("beams", "length_penalty"), "it is about a model that translates", "leave it out")
    assert options.data is not None
    text = Corpus.open(existing(options.data, "a prepared directory"), "heldout")
    return compare_text(encoder, other, text, options.seed), {"data": options.data, "split": "heldout"}


def measure_answers(options: Options, encoder: TextEncoder, other: TextEncoder) -> tuple[Comparison, dict[str, Any]]:
    """Labelled rows, answered by both."""
    from clozeworks.cli import named
    from clozeworks.data.tables import read_table
    from clozeworks.evaluate.against import compare_answers
    from clozeworks.inference.answers import predict_records
    from clozeworks.inference.predict import match_columns
    from clozeworks.train.finetune.plan import require_tokenizer

    task = limit_task(options, encoder)
    check_task_options(options, task.name)
    second = limit_task(options, other)
    if type(task) is not type(second):
        needed, todo = "answers to the same question are compared", "choose another model"
        raise InputError("--against", f"{second.name}, not {task.name}", needed, todo)
    assert options.test is not None
    file, columns = existing(options.test, "a labelled file"), named.pairs(options.columns, "--columns")
    table = read_table(file, match_columns(task), task.truth, columns, maybe=task.maybe).table
    answers = [
        predict_records(each.model, own, table, require_tokenizer(each), each.kind, truth=True)[0]
        for each, own in ((encoder, task), (other, second))
    ]
    result = compare_answers(task, answers[0], answers[1], table, options.seed)
    return result, {"test": options.test, "task": task.name}


def measure_translations(
    options: Options, encoder: TextEncoder, other: TextEncoder
) -> tuple[Comparison, dict[str, Any]]:
    """Sentences, translated by both."""
    from clozeworks.evaluate.against import compare_translations
    from clozeworks.train.finetune.plan import require_tokenizer

    for each, given in ((encoder, options.model), (other, options.against)):
        if each.recipe.decoder is None:
            needed = "labelled rows show how well a task is solved, pairs how well a decoder translates"
            raise InputError(given, "a model with neither", needed, "use --data for held-out text")
    tokenizer = require_tokenizer(encoder)
    pairs, _, about = read_test(options, encoder, tokenizer)
    how: dict[str, Any] = {"beams": options.beams, "penalty": options.length_penalty}
    texts = [each.translate([source for source, _ in pairs], **how) for each in (encoder, other)]
    wanted, small = [target for _, target in pairs], tokenizer.lowercase
    return compare_translations(texts[0], texts[1], wanted, small), {**about, **how}
