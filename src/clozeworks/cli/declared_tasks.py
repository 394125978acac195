"""What the commands for labelled rows take; see `declared.py`."""

from clozeworks.cli.arguments import MODEL, Parser, one_of, whole
from clozeworks.cli.arguments import allow_pickle as _allow_pickle
from clozeworks.cli.arguments import columns as _columns
from clozeworks.cli.arguments import json_facts as _json
from clozeworks.cli.arguments import model as _model

TASKS = ("classify", "pair", "tag", "qa", "choice", "seq2seq", "embed")


def finetune(parser: Parser) -> None:
    """Teach a model a task from labelled rows

    Reads .jsonl, .csv and .tsv files, CoNLL files for tag and SQuAD's JSON for span. Without --dev a tenth of the rows
    is put aside. Interrupted? The same command goes on where it stopped and ends with the same weights.

    clozeworks finetune classify --model run --train train.jsonl --dev dev.jsonl --out task
    clozeworks finetune classify --model HF_DIR --train train.csv --columns text=review label=stars --out task
    clozeworks finetune classify --model run --train train.jsonl --out task --freeze --features concat
    clozeworks finetune classify --model run --train train.jsonl --out task --continue-pretraining 500 --gradual-unfreezing --seeds 3
    """
    parser.add_argument("task", metavar="TASK", type=one_of(*TASKS), help=", ".join(TASKS))
    parser.add_argument("--model", required=True, metavar="M", help=MODEL)
    parser.add_argument("--parts", metavar="FILE.py", help="a file with parts of your own that the model is made of")
    parser.add_argument("--train", required=True, metavar="FILE", help="labelled rows to learn from")
    parser.add_argument("--dev", metavar="FILE", help="labelled rows to measure on (a tenth of --train)")
    parser.add_argument("--out", metavar="RUN", help="the run directory, a model directory in the end")
    _columns(parser)
    parser.add_argument(
        "--epochs", type=whole(), metavar="N", help="times that each row is seen (3; more for few rows)"
    )
    parser.add_argument("--batch-size", type=whole(), default=32, metavar="N", help="rows a step (32)")
    parser.add_argument(
        "--max-length", type=whole(), metavar="N", help="tokens of an example at most (512, or the model's)"
    )
    parser.add_argument(
        "--set",
        metavar="PATH=VALUE",
        action="append",
        default=[],
        help="change a field, such as train.learning_rate=5e-5, train.seed=1 or task.crf=CRF; may be repeated",
    )
    parser.add_argument("--freeze", action="store_true", help="the encoder gives features, and only the head learns")
    parser.add_argument(
        "--features",
        type=one_of("last", "sum", "concat", "mix"),
        default="last",
        metavar="last|sum|concat|mix",
        help="what the head reads: the last layer, the last four summed or joined, a learned mix of all (last)",
    )
    parser.add_argument(
        "--from-scratch", action="store_true", help="fresh weights, for comparison: what is pretraining worth?"
    )
    parser.add_argument(
        "--word-vectors", metavar="FILE", help="with --from-scratch: vectors that the table of words begins as"
    )
    parser.add_argument("--freeze-word-vectors", action="store_true", help="that table never learns")
    parser.add_argument(
        "--layer-decay", type=float, metavar="X", help="each layer at X times the rate of the one above, such as 0.9"
    )
    parser.add_argument(
        "--gradual-unfreezing",
        action="store_true",
        help="from the top, one layer more learns each epoch, lower ones slower",
    )
    parser.add_argument(
        "--continue-pretraining",
        type=whole(),
        metavar="STEPS",
        help="before that, go on with pretraining on the text of --train",
    )
    parser.add_argument(
        "--lm-weight",
        type=float,
        default=0.0,
        metavar="W",
        help="of models that read one way: weight of predicting the words too, such as 0.5 (0)",
    )
    parser.add_argument(
        "--architecture",
        type=one_of("decoder", "prefix"),
        default="decoder",
        metavar="decoder|prefix",
        help="write: an encoder and a decoder made of it, or one stack for source and target (decoder)",
    )
    parser.add_argument("--decoder", metavar="M", help="write: the model that the decoder begins as (--model)")
    parser.add_argument("--limit", type=whole(), metavar="N", help="learn from about N of the rows (all)")
    parser.add_argument("--patience", type=whole(), metavar="N", help="end after N epochs without a better figure")
    parser.add_argument(
        "--seeds", type=whole(), default=1, metavar="N", help="N runs; the best is the model of RUN (1)"
    )
    parser.add_argument("--device", default="auto", metavar="NAME", help="cpu, cuda, cuda:1, ... (auto)")
    parser.add_argument("--dry-run", action="store_true", help="say what was read and what would be done")
    _allow_pickle(parser)
    _json(parser)


def predict(parser: Parser) -> None:
    """What a fine-tuned model answers, row by row

    Rows in, JSON lines out, in their order: each row with its answer, label and scores or what the task has. What the
    row has under a name of the answer is kept as given_NAME. Files of any size are read piece by piece.

    clozeworks predict task rows.jsonl > answers.jsonl
    clozeworks predict task reviews.csv --columns text=review
    clozeworks predict task lines.txt --text
    """
    _model(parser)
    parser.add_argument(
        "file", nargs="?", default="-", metavar="FILE", help="rows; - for standard input, JSON lines (-)"
    )
    parser.add_argument("--text", action="store_true", help="each line of FILE is a text; empty ones are left out")
    _columns(parser)
