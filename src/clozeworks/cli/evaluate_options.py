"""What `evaluate` may be given, and the rows or pairs that its options name."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from clozeworks.cli.arguments import (
    BeamOptions,
    ColumnOptions,
    Idle,
    InferenceOptions,
    integer,
    option,
    random_seed,
    refuse_given,
)
from clozeworks.cli.paths import existing
from clozeworks.core import spec
from clozeworks.core.errors import InputError

if TYPE_CHECKING:
    from clozeworks.data.tokens.tokenizer import Tokenizer
    from clozeworks.inference.text_encoder import TextEncoder
    from clozeworks.tasks.task import Task

UNLABELLED = ("context", "stride", "max_tokens", "memory", "rounds", "pairs")  # options about text without labels
BEAMS = ("beams", "length_penalty")


@dataclass(kw_only=True)
class Options(BeamOptions, ColumnOptions, InferenceOptions):
    """Evaluate a model on held-out text or labelled rows

    A pretrained model: loss, perplexity and accuracy on held-out text, beside those of word frequencies alone. A causal
    language model may also predict each token from a sliding window (--context); one with a memory is then measured
    both ways. One that translates is scored by BLEU (sacrebleu), too: on the held-out text, or on a file of pairs. A
    fine-tuned model: metrics on labelled rows with confidence intervals, precision, recall and F1 of each class, the
    confusion matrix, and the worst mistakes. With --against, two models on the same rows, or on held-out text under the
    same masks: the difference of each metric with its paired 95 % interval.

    clozeworks evaluate run --data data
    clozeworks evaluate run --data data --context 128 --stride 32
    clozeworks evaluate run --test pairs.jsonl --pairs en,de
    clozeworks evaluate task --test test.jsonl --report report.html
    clozeworks evaluate small --against task --test test.jsonl
    """

    idle: ClassVar[tuple[Idle, ...]] = (
        Idle(("pairs",), lambda options: options.test is None, "it names fields of a file", "give --test FILE"),
        Idle(("seed",), lambda options: options.context is not None, "a window slides over all tokens, none is drawn"),
    )
    data: str | None = option("what prepare wrote, with the model's tokenizer", metavar="DIR")
    test: str | None = option("instead of --data: labelled rows, or pairs to translate", metavar="FILE")
    against: str | None = option("another model, to compare on the same rows or masks", metavar="OTHER")
    report: str | None = option("of labelled rows: write it all as one HTML page", metavar="FILE")
    pairs: str | None = option("fields of source and target in FILE", metavar="A,B", otherwise="the two it has")
    seed: int = random_seed("random seed of the masks", 0)
    max_length: int | None = integer("sequence length: tokens of an example at most", otherwise="as in training")
    memory: int | None = integer("segment memory: tokens that the model remembers", least=0, otherwise="as in training")
    rounds: int | None = integer("hash rounds of LSH attention", otherwise="as in training")
    context: int | None = integer("sliding-window evaluation: predict each token from a window of N tokens")
    stride: int | None = integer("tokens by which the window slides", metavar="K", otherwise=1)
    max_tokens: int | None = integer("read the first N tokens of the text by the window", least=2, otherwise="all")


def read_test(
    options: Options, encoder: TextEncoder, tokenizer: Tokenizer
) -> tuple[list[tuple[str, str]], dict[str, Any], dict[str, str]]:
    """The pairs to translate, the metrics of their tokens, and where they are from."""
    from clozeworks.data.shards.corpus import Corpus
    from clozeworks.evaluate import heldout
    from clozeworks.evaluate.pair_text import PairText, choose_fields, decode_pairs, read_pairs
    from clozeworks.evaluate.text import evaluate_text

    if options.test is not None:
        file = existing(options.test, "a file of pairs")
        fields = choose_fields(file, options.pairs)
        pairs = read_pairs(file, fields)
        text, objective = PairText(tokenizer, pairs), encoder.recipe.objective
        metrics = heldout.evaluate(encoder.model, text, objective, encoder.vocabulary(), seed=options.seed)
        return pairs, metrics, {"test": options.test, "pairs": ",".join(fields)}
    assert options.data is not None
    directory = existing(options.data, "a prepared directory")
    metrics = evaluate_text(encoder, directory, options.seed)
    pairs = decode_pairs(Corpus.open(directory, "heldout"), tokenizer)
    return pairs, metrics, {"data": options.data, "split": "heldout"}


def limit_task(options: Options, encoder: TextEncoder) -> Task:
    """The model's task, its examples of --max-length tokens where that is given."""
    from clozeworks.inference.predict import get_task
    from clozeworks.train.finetune.plan import limit_length

    task = get_task(encoder.recipe)
    if options.max_length is not None:
        task = dataclasses.replace(task, template=limit_length(task.template, encoder.recipe, options.max_length))
        spec.check(task.template, "--max-length")
    return task


def check_task_options(options: Options, task: str) -> None:
    """Refuse what has no meaning for labelled rows."""
    if options.test is None:
        needed = f"it was trained to {task}, and labelled rows show how well"
        raise InputError("--data", options.data, needed, "give them as --test FILE")
    refuse_given(options, UNLABELLED, "it is about text without labels", "leave it out")
    refuse_given(options, BEAMS, "how a task answers is a field of its recipe", "leave it out")
    if options.report is not None and not options.report.endswith((".html", ".htm")):
        raise InputError("--report", options.report, "it is one HTML page", "use an ending of .html")
