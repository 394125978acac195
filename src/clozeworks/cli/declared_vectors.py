"""What the command for word vectors takes; see `declared.py`."""

from clozeworks.cli.arguments import Parser, one_of, whole
from clozeworks.cli.arguments import json_facts as _json

METHODS = ("skipgram", "cbow", "fasttext", "glove")
WHAT = (*METHODS, "phrases", "evaluate", "similar", "convert")
TEXT = ("corpus", "lang", "segmenter", "cased", "no_marks", "field", "encoding", "errors", "processes", "engine")
OPTIONS = {  # that mean something, beside --json
    "phrases": (*TEXT, "out", "phrases", "min_count", "threshold", "top"),
    "evaluate": ("similarity", "analogies", "method", "limit", "cased", "errors"),
    "similar": ("minus", "top", "limit", "cased", "errors"),
    "convert": ("limit", "errors", "no_header"),
}
ASKING = ("similarity", "analogies", "method", "limit", "top", "minus")  # of no use to those that train


def vectors(parser: Parser) -> None:
    """Train, judge, search and convert word vectors

    skipgram, cbow, glove: vectors of a text; fasttext: skipgram with n-grams, for words that are not in it. phrases:
    words that stand together. evaluate: against files of judged pairs and of analogies. similar: the nearest words, to
    several words or away from some. convert: from one format to another. The ending of --out is the format:
    .safetensors, .txt or .vec (text of word2vec), .bin (its bytes).

    clozeworks vectors skipgram corpus.txt --out words.safetensors
    clozeworks vectors glove corpus.txt --out words.txt --dim 50 --no-header
    clozeworks vectors evaluate words.txt --similarity ws353.txt --analogies questions.txt
    clozeworks vectors similar words.txt king woman --minus man
    clozeworks vectors convert GoogleNews-vectors-negative300.bin.gz words.safetensors --limit 200000
    """
    parser.add_argument("what", type=one_of(*WHAT), metavar="WHAT", help=", ".join(WHAT))
    parser.add_argument(
        "given",
        nargs="*",
        metavar="FILE|WORD",
        help="text to learn from; files of vectors; of similar, a file and words",
    )
    parser.add_argument("--corpus", type=one_of("en", "zh"), metavar="en|zh", help="the embedded text instead of files")
    parser.add_argument("--out", metavar="FILE", help="where to write vectors; of phrases, a table")
    _training(parser)
    _text(parser)
    _asking(parser)
    _json(parser)


def _training(parser: Parser) -> None:
    parser.add_argument("--dim", type=whole(), default=100, metavar="N", help="numbers of a vector (100)")
    parser.add_argument("--window", type=whole(), metavar="N", help="words to each side (5; glove 15)")
    parser.add_argument("--negative", type=whole(0), metavar="N", help="words drawn against each (5)")
    parser.add_argument("--hs", action="store_true", help="hierarchical softmax instead of drawn words")
    parser.add_argument("--sample", type=float, metavar="T", help="thin out words above this share (1e-3)")
    parser.add_argument("--min-count", type=whole(), default=5, metavar="N", help="leave rarer words out (5)")
    parser.add_argument("--max-words", type=whole(), metavar="N", help="the most frequent N alone (all)")
    parser.add_argument("--epochs", type=whole(), metavar="N", help="times over the text or the pairs (5; glove 25)")
    parser.add_argument("--rate", type=float, metavar="R", help="of learning (0.025; cbow and glove 0.05)")
    parser.add_argument("--shortest", "--minn", type=whole(), metavar="N", help="fasttext: letters of an n-gram (3)")
    parser.add_argument("--longest", "--maxn", type=whole(), metavar="N", help="fasttext: of the longest ones (6)")
    parser.add_argument("--buckets", "--bucket", type=whole(), metavar="N", help="fasttext: they share (2,000,000)")
    parser.add_argument("--continuous", action="store_true", help="fasttext: cbow in place of skipgram")
    parser.add_argument("--x-max", type=float, metavar="X", help="glove: pairs above it weigh 1 (100)")
    parser.add_argument("--memory", type=whole(), metavar="MB", help="glove: to count pairs in (512)")
    parser.add_argument("--phrases", type=whole(), metavar="N", help="join words that stand together, in N passes")
    parser.add_argument("--threshold", type=float, default=10.0, metavar="X", help="of a phrase's score (10)")
    parser.add_argument("--seed", type=whole(0), default=0, metavar="S", help="another seed, other vectors (0)")
    parser.add_argument("--workers", type=whole(), metavar="N", help="threads (one a core)")
    parser.add_argument("--deterministic", action="store_true", help="one thread, and the same bytes each time")


def _text(parser: Parser) -> None:
    parser.add_argument("--lang", type=one_of("en", "zh"), metavar="en|zh", help="of the text (seen from its letters)")
    parser.add_argument(
        "--segmenter", metavar="NAME", help="who finds words, as in prepare (jieba for zh); spaces: cut there alone"
    )
    parser.add_argument("--cased", action="store_true", help="capitals matter")
    parser.add_argument("--no-marks", action="store_true", help="punctuation marks are no words")
    parser.add_argument("--field", default="text", metavar="NAME", help="the field that holds the text (text)")
    parser.add_argument("--encoding", default="utf-8", metavar="NAME", help="such as gb18030; auto detects it (utf-8)")
    parser.add_argument(
        "--errors",
        type=one_of("strict", "replace", "skip"),
        default="strict",
        metavar="strict|replace|skip",
        help="what to do with lines, rows and vectors that cannot be read (strict)",
    )
    parser.add_argument("--processes", type=whole(), default=1, metavar="N", help="that read the text (1)")
    parser.add_argument(
        "--engine", type=one_of("local", "ray"), default="local", metavar="local|ray", help="where they run (local)"
    )


def _asking(parser: Parser) -> None:
    parser.add_argument("--similarity", nargs="+", default=[], metavar="FILE", help="pairs with a judgement each")
    parser.add_argument("--analogies", nargs="+", default=[], metavar="FILE", help="four words a line")
    parser.add_argument(
        "--method",
        type=one_of("add", "multiply"),
        default="add",
        metavar="add|multiply",
        help="how analogies are solved: 3CosAdd or 3CosMul (add)",
    )
    parser.add_argument("--limit", type=whole(), metavar="N", help="the first N vectors of a file (all)")
    parser.add_argument("--top", type=whole(), default=10, metavar="N", help="words or phrases to show (10)")
    parser.add_argument("--minus", nargs="+", default=[], metavar="WORD", help="similar: away from these")
    parser.add_argument("--no-header", action="store_true", help="text without its first line, as GloVe's files are")
