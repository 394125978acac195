"""What each command takes: one function a command, which declares its arguments; its docstring is its help.

The first line is the summary, lines that begin with `clozeworks` are examples. Nothing heavy is imported here.
"""

from collections.abc import Callable

from clozeworks.cli.arguments import MODEL, RECIPE, Parser, one_of, share, whole
from clozeworks.cli.arguments import allow_pickle as _allow_pickle
from clozeworks.cli.arguments import beams as _beams
from clozeworks.cli.arguments import columns as _columns
from clozeworks.cli.arguments import json_facts as _json
from clozeworks.cli.arguments import model as _model
from clozeworks.cli.arguments import recipe as _recipe
from clozeworks.cli.declared_tasks import finetune, predict
from clozeworks.cli.declared_vectors import vectors


def quickstart(parser: Parser) -> None:
    """The whole road on text that is already here, in about two minutes

    clozeworks quickstart
    clozeworks quickstart --lang zh --out quickstart-zh
    """
    parser.add_argument("--lang", type=one_of("en", "zh"), default="en", metavar="en|zh", help="language (en)")
    parser.add_argument("--out", metavar="DIR", help="where to write (quickstart-LANG)")
    parser.add_argument("--steps", type=whole(), metavar="N", help="training steps; fewer are quicker and worse")
    parser.add_argument("--seed", type=whole(0), default=0, metavar="S", help="another seed, another model (0)")


def doctor(parser: Parser) -> None:
    """What this machine can do, measured once and remembered

    Tries threads, bf16, devices and windows in child processes, in about seventeen seconds. Every command uses the
    verdict.

    clozeworks doctor
    """
    parser.add_argument("--again", action="store_true", help="measure again, whatever is remembered")
    _json(parser)


def recipes(parser: Parser) -> None:
    """Every named model

    clozeworks recipes
    clozeworks recipes --tree
    """
    parser.add_argument("--tree", action="store_true", help="as a family tree: what each changes of its next of kin")
    _json(parser)


def show(parser: Parser) -> None:
    """The parts of a recipe: parameters, arithmetic, memory

    Nothing is allocated, so the largest model is shown at once.

    clozeworks show bert_base
    clozeworks show bert_mini --set encoder.stack.depth=8
    """
    _recipe(parser)
    _json(parser)


def diff(parser: Parser) -> None:
    """What changes from one recipe to another

    clozeworks diff bert_base roberta_base
    """
    parser.add_argument("before", metavar="A", help=RECIPE)
    parser.add_argument("after", metavar="B", help="another")
    _json(parser)


def prepare(parser: Parser) -> None:
    """Text into a tokenizer and shards

    Reads .txt (a blank line ends a document), .jsonl, .csv, .tsv, .parquet and .arrow files, plain or compressed (.gz
    .zst .xz .bz2), directories and globs of them, and standard input (-). Interrupted? The same command goes on.

    clozeworks prepare corpus.txt --out data --vocab 8000
    clozeworks prepare more.txt --tokenizer data --out more
    clozeworks prepare 'crawl/*.jsonl.gz' --out data --processes 8 --dedupe
    clozeworks prepare pairs.jsonl --pairs en,de --out data
    clozeworks prepare corpus.txt --check
    """
    kinds = (
        "wordpiece, bytes, bpe, unigram, words or chars, trained on the text; or a path to take one from (wordpiece)"
    )
    parser.add_argument("text", nargs="*", metavar="TEXT", help="files, directories, globs, or - for standard input")
    parser.add_argument("--corpus", type=one_of("en", "zh"), metavar="en|zh", help="the embedded text instead of TEXT")
    parser.add_argument("--out", metavar="DIR", help="where to write")
    parser.add_argument("--check", action="store_true", help="only look at the text and say what will go wrong")
    parser.add_argument("--tokenizer", default="wordpiece", metavar="KIND|PATH", help=kinds)
    parser.add_argument("--vocab", type=whole(), metavar="N", help="pieces of a new tokenizer (8192)")
    parser.add_argument("--cased", action="store_true", help="keep capitals; a bytes tokenizer always does")
    parser.add_argument("--add-tokens", metavar="FILE", help="words to add to a tokenizer that exists, one a line")
    parser.add_argument("--lang", type=one_of("en", "zh"), metavar="en|zh", help="of the text (seen from its letters)")
    parser.add_argument(
        "--segmenter",
        metavar="NAME",
        help="who finds Chinese words: jieba, spaces (they are in the text), none, or file.py:function (jieba for zh)",
    )
    parser.add_argument(
        "--heldout", type=share, default=0.02, metavar="SHARE", help="of the documents, kept for evaluation (0.02)"
    )
    parser.add_argument("--dedupe", action="store_true", help="leave out exact copies of documents")
    parser.add_argument(
        "--field", default="text", metavar="NAME", help="the field or column that holds the text (text)"
    )
    parser.add_argument("--pairs", metavar="A,B", help="two fields: two-sided text for translation")
    parser.add_argument("--encoding", default="utf-8", metavar="NAME", help="such as gb18030; auto detects it (utf-8)")
    parser.add_argument(
        "--errors",
        type=one_of("strict", "replace", "skip"),
        default="strict",
        metavar="strict|replace|skip",
        help="what to do with bytes and rows that cannot be read (strict)",
    )
    parser.add_argument(
        "--unicode",
        type=one_of("none", "nfc", "nfkc"),
        default="none",
        metavar="none|nfc|nfkc",
        help="normalise the characters (none)",
    )
    parser.add_argument(
        "--unwrap", action="store_true", help="join the lines of a paragraph of .txt, as in old e-texts"
    )
    parser.add_argument("--processes", type=whole(), metavar="N", help="on this machine (as many as pay off)")
    parser.add_argument(
        "--engine",
        type=one_of("local", "ray"),
        default="local",
        metavar="local|ray",
        help="ray: on the cluster that RAY_ADDRESS names, or a local one (local)",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace what an earlier prepare wrote to DIR")
    _json(parser)


def examples(parser: Parser) -> None:
    """What the model will be asked, before any training

    clozeworks examples bert_mini --data data --count 3
    clozeworks examples roberta_mini --data data --set objective.corruption=MaskSpans
    clozeworks examples roberta_mini --data data --set "objective.segments=DocSentences(length=64)"
    clozeworks examples --run run --step 1234
    """
    _recipe(parser, nargs="?")
    parser.add_argument("--data", metavar="DIR", help="what prepare wrote")
    parser.add_argument("--run", metavar="RUN", help="instead of RECIPE and --data: a run, with --step")
    parser.add_argument("--step", type=whole(), metavar="N", help="exactly what this step of the run was trained on")
    parser.add_argument("--parts", metavar="FILE.py", help="a file with parts of your own that the run is made of")
    parser.add_argument("--count", type=whole(), metavar="N", help="how many (3; 1 with --index, all with --step)")
    parser.add_argument("--index", type=whole(0), metavar="I", help="from this example on (the first)")
    parser.add_argument("--seed", type=whole(0), metavar="S", help="of segments and masks (the recipe's train.seed)")
    parser.add_argument("--epoch", type=whole(0), default=0, metavar="E", help="each epoch hides other tokens (0)")
    parser.add_argument(
        "--split", type=one_of("train", "heldout"), default="train", metavar="train|heldout", help="which text (train)"
    )
    parser.add_argument("--mark-words", action="store_true", help="mark where words begin")
    parser.add_argument("--json", action="store_true", help="one JSON object a line instead")


def pretrain(parser: Parser) -> None:
    """Train a recipe on prepared text

    Interrupted? The same command goes on where it stopped and ends with the same weights. Ctrl-C and SIGTERM finish the
    step, save and end with exit code 130 or 143; a second one stops at once. A finished run ends with 0.

    clozeworks pretrain bert_mini --data data --out run
    clozeworks pretrain bert_mini --data A:0.7 B:0.3 --out run --set train.steps=2000
    clozeworks pretrain bert_mini --from HF_DIR --data data --out run
    clozeworks pretrain distilbert_mini --teacher run --data data --out small
    clozeworks pretrain bert_mini --data data --out run --processes 2
    """
    _recipe(parser)
    several = "what prepare wrote; several are mixed by weight"
    parser.add_argument("--data", required=True, nargs="+", metavar="DIR[:WEIGHT]", help=several)
    parser.add_argument("--out", metavar="RUN", help="the run directory")
    parser.add_argument(
        "--from",
        dest="source",
        metavar="DIR",
        help="continue from a run, a model or a Hugging Face directory; the encoder is then that one",
    )
    parser.add_argument("--teacher", metavar="DIR", help=f"{MODEL}, to learn from; for recipes that distil")
    parser.add_argument("--word-vectors", metavar="FILE", help="vectors that the table of words begins as")
    parser.add_argument("--freeze-word-vectors", action="store_true", help="that table never learns")
    parser.add_argument("--parts", metavar="FILE.py", help="a file with parts of your own, of --from and --teacher")
    parser.add_argument("--dry-run", action="store_true", help="say tokens, epochs, hours and memory; train nothing")
    parser.add_argument(
        "--log",
        type=one_of("tensorboard", "wandb"),
        action="append",
        default=[],
        metavar="tensorboard|wandb",
        help="write the rows of metrics.jsonl there too; may be repeated",
    )
    parser.add_argument("--device", default="auto", metavar="NAME", help="cpu, cuda, cuda:1, ... (auto)")
    parser.add_argument(
        "--processes", type=whole(), metavar="N", help="on this machine, training together (the recipe's, 1)"
    )
    parser.add_argument(
        "--launch",
        type=one_of("slurm", "torchrun"),
        metavar="slurm|torchrun",
        help="with --dry-run: print what starts --processes on each of several machines",
    )
    parser.add_argument("--nodes", type=whole(), default=1, metavar="N", help="machines, for --launch (1)")
    _allow_pickle(parser)
    _json(parser)


def runs(parser: Parser) -> None:
    """Runs and their state: running, stopped, finished or broken

    clozeworks runs
    clozeworks runs experiments --json
    """
    parser.add_argument("directories", nargs="*", metavar="DIR", help="where to look, below it too (here)")
    _json(parser)


def evaluate(parser: Parser) -> None:
    """Held-out figures beside those of word frequencies alone

    A model that reads one way may also be asked for each token from the window of so many before it, read anew; one
    with a memory is then measured both ways. One that translates is scored by BLEU (sacrebleu), too: on the held-out
    text, or on a file of pairs. One that was fine-tuned is measured on labelled rows: figures with intervals, classes,
    what was told for what, and the worst mistakes.

    clozeworks evaluate run --data data
    clozeworks evaluate run --data data --window 128 --stride 32
    clozeworks evaluate run --test pairs.jsonl --pairs en,de
    clozeworks evaluate task --test test.jsonl --report report.html
    """
    _model(parser)
    parser.add_argument("--data", metavar="DIR", help="what prepare wrote, with the model's tokenizer")
    parser.add_argument("--test", metavar="FILE", help="instead of --data: labelled rows, or pairs to translate")
    parser.add_argument("--report", metavar="FILE", help="of labelled rows: write it all as one HTML page")
    _columns(parser)
    parser.add_argument("--pairs", metavar="A,B", help="fields of source and target in FILE (the two it has)")
    _beams(parser)
    parser.add_argument("--seed", type=whole(0), default=0, metavar="S", help="of the masks (0)")
    parser.add_argument("--max-length", type=whole(), metavar="N", help="tokens of an example (as in training)")
    parser.add_argument("--memory", type=whole(0), metavar="N", help="rows that it remembers (as in training)")
    parser.add_argument("--rounds", type=whole(), metavar="N", help="of hashing in LSH attention (as in training)")
    parser.add_argument("--window", type=whole(), metavar="N", help="slide a window of N tokens over the text")
    parser.add_argument("--stride", type=whole(), metavar="K", help="tokens by which the window slides (1)")
    parser.add_argument("--tokens", type=whole(2), metavar="N", help="of the text to read by the window (all)")
    _json(parser)


def inspect(parser: Parser) -> None:
    """What the layers of models do to a text

    layers: how far each one moves a token, and by which angle, the mean distance and cosine between its input and its
    output. spans: how far back each head has learned to look.

    clozeworks inspect layers run --data data
    clozeworks inspect layers run-a run-b --data data --out layers.svg
    clozeworks inspect spans run --out spans.svg
    """
    parser.add_argument("what", type=one_of("layers", "spans"), metavar="layers|spans", help="what to look at")
    parser.add_argument("models", nargs="+", metavar="MODEL", help=f"{MODEL}; several are compared")
    parser.add_argument("--parts", metavar="FILE.py", help="a file with parts of your own that a model is made of")
    parser.add_argument("--data", metavar="DIR", help="what prepare wrote, with the models' tokenizer (for layers)")
    parser.add_argument("--out", metavar="FILE", help="draw it, too: .svg, .png or .pdf")
    _allow_pickle(parser)
    _json(parser)


def fill_mask(parser: Parser) -> None:
    """The likeliest words for each [MASK] of a text

    clozeworks fill-mask run "The value must be a [MASK]."
    """
    _model(parser)
    parser.add_argument(
        "text", metavar="TEXT", help="with [MASK] (or what the tokenizer calls it) where a word is missing"
    )
    parser.add_argument("--top", type=whole(), default=5, metavar="N", help="how many words (5)")
    _json(parser)


def generate(parser: Parser) -> None:
    """Let a model that reads one way go on with a text

    Tokens are drawn by chance, the same for a seed; --temperature 0 takes the likeliest, --beams N the best of N beams.

    clozeworks generate run "Once upon a time" --tokens 60
    clozeworks generate run "Once upon a time" --temperature 0.8 --top-p 0.9 --count 3
    clozeworks generate run "Once upon a time" --beams 4
    """
    _model(parser)
    parser.add_argument("prompt", nargs="?", default="", metavar="PROMPT", help="the text to go on with (none)")
    parser.add_argument("--tokens", type=whole(), default=50, metavar="N", help="at most so many more (50)")
    parser.add_argument(
        "--temperature", type=float, default=1.0, metavar="T", help="below 1: less by chance; 0: the likeliest (1)"
    )
    parser.add_argument("--top-k", type=whole(), metavar="K", help="choose among the K likeliest tokens (all)")
    parser.add_argument("--top-p", type=float, metavar="P", help="among the likeliest that have the chance P (1)")
    parser.add_argument("--beams", type=whole(), default=1, metavar="N", help="search along N beams instead (1)")
    parser.add_argument(
        "--length-penalty", type=float, default=1.0, metavar="A", help="beams are scored by log p / length**A (1)"
    )
    parser.add_argument("--count", type=whole(), default=1, metavar="N", help="how many texts (1)")
    parser.add_argument("--seed", type=whole(0), default=0, metavar="S", help="another seed, another text (0)")
    _json(parser)


def translate(parser: Parser) -> None:
    """Translate texts with a model that has a decoder

    The best of several beams for each text; those of like length are searched together, which changes none of them.

    clozeworks translate run "A man is sleeping."
    clozeworks translate run --file test.en --out test.de
    clozeworks translate run "A man is sleeping." --alignment alignment.svg
    """
    _model(parser)
    parser.add_argument("text", nargs="*", metavar="TEXT", help="one or several")
    parser.add_argument("--file", metavar="FILE", help="instead of TEXT: one text a line; - for standard input")
    _beams(parser)
    parser.add_argument("--out", metavar="FILE", help="write the translations there, one a line")
    parser.add_argument(
        "--alignment", metavar="FILE", help="of one TEXT, draw where the decoder looked: .svg, .png, .pdf"
    )
    _json(parser)


def export(parser: Parser) -> None:
    """Write a model that others can load

    clozeworks export run --to hf --out my-bert
    """
    _model(parser)
    parser.add_argument(
        "--to",
        type=one_of("hf", "clozeworks", "sentence-transformers"),
        default="hf",
        metavar="hf|clozeworks|sentence-transformers",
        help="for transformers' from_pretrained, in our own format, or for sentence-transformers (hf)",
    )
    parser.add_argument("--out", required=True, metavar="DIR", help="where to write")
    _json(parser)


def import_(parser: Parser) -> None:
    """Turn a Hugging Face directory into a model of ours

    clozeworks import HF_DIR --out model
    """
    parser.add_argument("model", metavar="HF_DIR", help="config.json, model.safetensors and a tokenizer")
    parser.add_argument("--out", required=True, metavar="DIR", help="where to write")
    _allow_pickle(parser)
    _json(parser)


def convert(parser: Parser) -> None:
    """Make a model for long texts of one for short texts

    Positions are laid end to end, and each token looks through a window and at global tokens. In texts that a window
    covers, without global tokens, the model stays the same. It then wants some training on long texts.

    clozeworks convert run --to longformer --out long
    clozeworks convert run --to longformer --max-length 2048 --window 256 --out long
    clozeworks convert long-run --refresh-global --out long
    """
    _model(parser)
    parser.add_argument(
        "--to", type=one_of("longformer"), default="longformer", metavar="longformer", help="what to make (longformer)"
    )
    parser.add_argument("--max-length", type=whole(), metavar="N", help="of the longest text, in tokens (4096)")
    parser.add_argument("--window", type=whole(), metavar="N", help="tokens in sight, half to either side (512)")
    parser.add_argument(
        "--refresh-global",
        action="store_true",
        help="of a converted model: copy the projections of global tokens again, which pretraining leaves behind",
    )
    parser.add_argument("--out", required=True, metavar="DIR", help="where to write")
    _json(parser)


def name_of(declare: Callable[[Parser], None]) -> str:
    return declare.__name__.rstrip("_").replace("_", "-")


GROUPS: dict[str, tuple[Callable[[Parser], None], ...]] = {
    "start": (quickstart, doctor),
    "models": (recipes, show, diff),
    "the road": (prepare, examples, pretrain, runs, evaluate, inspect, fill_mask, generate, translate, export),
    "tasks": (finetune, predict),
    "words": (vectors,),
    "and": (import_, convert),
}
COMMANDS = {name_of(declare): declare for group in GROUPS.values() for declare in group}
