"""An option has its effect or is refused: every option of every command is in one of two tables.

`ALWAYS` are those whose effect no other option and no model takes away. Of all others `IDLE` has a command line in
which they would do nothing, and what is said of it. A new option belongs to one of them.
"""

from pathlib import Path

import pandas
import pytest

from clozeworks.cli.main import COMMANDS, parser_of
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.inference.text_encoder import TextEncoder, save
from clozeworks.recipe import build
from clozeworks.recipes import recipe
from tests.command_line import refused
from tests.labelled import rows, write

pytestmark = pytest.mark.usefixtures("one_thread")

READING = "--corpus --lang"  # --field, --encoding and --errors are about files
WORDS = f"{READING} --segmenter --cased --no-punctuation --processes --engine --json"
VECTORS = f"{WORDS} --out --dim --min-count --max-words --phrase-passes --seed --deterministic --learning-rate --epochs"
# --allow-pickle and --parts say what a model may be; --dry-run tells of the command that is beside it.
MODEL = "--allow-pickle --parts --device --json"
ALWAYS = {
    "quickstart": "--lang --out --seed --steps",
    "doctor": "--again --json",
    "recipes": "--json",
    "show": "--json --set",
    "diff": "--json",
    "prepare": f"{READING} --check --dedupe --engine --heldout --json --out --overwrite --processes --segmenter "
    "--tokenizer --unicode",
    "examples": "--count --json --run --step",
    "pretrain": "--batch-tokens --data --device --dry-run --from --json --learning-rate --log --out --processes --seed "
    "--set --word-vectors",
    "runs": "--json",
    "evaluate": f"{MODEL} --against --data --test",
    "inspect": f"{MODEL} --out",
    "finetune": f"{MODEL} --batch-size --columns --dev --dry-run --epochs --from-scratch --learning-rate --limit "
    "--max-length --model --out --seed --set --train",
    "compress": f"{MODEL} --data --dry-run --seed",
    "predict": "--allow-pickle --parts --device --batch-size --out --text",
    "encode": "--allow-pickle --parts --device --batch-tokens --normalize --out --pooling",
    "fill-mask": f"{MODEL} --top",
    "generate": f"{MODEL} --beams --max-new-tokens",
    "translate": "--allow-pickle --parts --device --beams --length-penalty --file --out",
    "import": "--allow-pickle --json --out",
    "export": "--allow-pickle --parts --json --out --to",
    "convert": "--allow-pickle --parts --json --out --to",
    "vectors skipgram": f"{VECTORS} --window --sample --hs",
    "vectors cbow": f"{VECTORS} --window --sample --hs",
    "vectors fasttext": f"{VECTORS} --window --sample --minn --bucket --cbow --negative",
    "vectors glove": f"{VECTORS} --window --x-max --memory-mb",
    "vectors phrases": f"{WORDS} --out --min-count --threshold --top",
    "vectors evaluate": "--analogies --cased --errors --json --limit --similarity",
    "vectors similar": "--cased --errors --json --limit --minus --top",
    "vectors convert": "--errors --json --limit",
}
FILES = [
    ("{command} --corpus en --field body {out}", "--field", "the embedded text"),
    ("{command} --corpus en --encoding gbk {out}", "--encoding", "the embedded text"),
    ("{command} --corpus en --errors skip {out}", "--errors", "the embedded text"),
    ("{command} {road}/corpus.txt --field body {out}", "--field", "lines of text have no fields"),
    ("{command} {made}/rows.parquet --encoding gbk {out}", "--encoding", "has letters"),
]
TRAINING = [
    *FILES,
    ("{command} {road}/corpus.txt {out} --threshold 5", "--threshold", "add --phrase-passes"),
    ("{command} {road}/corpus.txt {out} --deterministic --workers 2", "--workers", "one thread"),
    ("{command} {road}/corpus.txt --out {made}/new.safetensors --no-header", "--no-header", "without a header"),
]
NEGATIVE = ("{command} {road}/corpus.txt {out} --hs --negative 5", "--negative", "hierarchical softmax draws none")
IDLE = {
    "recipes": [("recipes --tree --json", "--tree", "the parent of each")],
    "prepare": [
        *FILES,
        ("prepare --corpus en --pairs a,b {out}", "--pairs", "the embedded text"),
        ("prepare --corpus en --unwrap {out}", "--unwrap", "the embedded text"),
        ("prepare {made}/rows.jsonl --unwrap {out}", "--unwrap", "joins lines of .txt"),
        ("prepare {made}/rows.jsonl --pairs text,label --field text {out}", "--field", "--pairs names"),
        ("prepare {road}/corpus.txt --tokenizer {road}/data --vocab 99 {out}", "--vocab", "a tokenizer already"),
        ("prepare {road}/corpus.txt --tokenizer {road}/data --vocab 99 --check", "--vocab", "a tokenizer already"),
        ("prepare {road}/corpus.txt --tokenizer {road}/data --cased {out}", "--cased", "a tokenizer already"),
        ("prepare {road}/corpus.txt --add-tokens {road}/more.txt {out}", "--add-tokens", "a tokenizer that exists"),
        ("prepare {road}/corpus.txt --add-tokens {road}/more.txt --check", "--add-tokens", "a tokenizer that exists"),
    ],
    "examples": [
        *(
            (f"examples --run {{road}}/run --step 1 {more}", more.split()[0], "these two alone")
            for more in ("--data {road}/data", "--set train.seed=1", "--index 1", "--seed 1", "--epoch 0")
        ),
        ("examples --run {road}/run --step 1 --split train", "--split", "these two alone"),
        ("examples bert_tiny --data {road}/data --parts x.py", "--parts", "of a run"),
        ("examples bert_tiny --data {road}/data --mark-words --json", "--mark-words", "where words begin"),
    ],
    "pretrain": [
        ("pretrain bert_tiny --data {road}/data {out} --parts x.py", "--parts", "--from or --teacher"),
        ("pretrain bert_tiny --data {road}/data {out} --allow-pickle", "--allow-pickle", "--from or --teacher"),
        (
            "pretrain bert_tiny --data {road}/data {out} --from {road}/run --start prior",
            "--start",
            "no weights are fresh",
        ),
        ("pretrain bert_tiny --data {road}/data {out} --budget 1m --steps 5", "--budget", "train.steps"),
        ("pretrain bert_tiny --data {road}/data {out} --budget 1m --set train.steps=5", "--budget", "train.steps"),
        ("pretrain bert_tiny --data {road}/data {out} --budget 1m --from {road}/run", "--budget", "--from"),
        ("pretrain bert_tiny --data {road}/data {out} --budget 1m --processes 2", "--budget", "train.processes"),
        ("pretrain bert_base --data {road}/data {out} --max-length 64", "--max-length", "train.phases"),
        ("pretrain bert_tiny --data {road}/data {out} --teacher {road}/run", "--teacher", "distilbert_mini"),
        ("pretrain bert_tiny --data {road}/data {out} --freeze-word-vectors", "--freeze-word-vectors", "of a file"),
        ("pretrain bert_tiny --data {road}/data {out} --launch slurm", "--launch", "--dry-run"),
        ("pretrain bert_tiny --data {road}/data {out} --nodes 2", "--nodes", "--launch"),
        ("pretrain bert_tiny --data {road}/data {out} --budget 1m --steps 5", "--steps", "train.steps"),
    ],
    "evaluate": [
        *(
            (f"evaluate {{road}}/run --data {{road}}/data {more}", more.split()[0], said)
            for more, said in (
                ("--report r.html", "no task"),
                ("--columns text=a", "no task"),
                ("--pairs a,b", "give --test"),
                ("--memory 4", "without a memory"),
                ("--rounds 2", "LSH"),
                ("--stride 2", "a sliding window"),
                ("--max-tokens 9", "a sliding window"),
                ("--seed 0 --context 9", "none is drawn"),
                ("--beams 4", "a model that translates"),
                ("--length-penalty 0.6", "a model that translates"),
                ("--max-length 9999", "positions"),
            )
        ),
        *(
            (f"evaluate {{tuned}} --test {{made}}/rows.jsonl {more}", more.split()[0], said)
            for more, said in (
                ("--context 9", "without labels"),
                ("--memory 4", "without labels"),
                ("--rounds 2", "without labels"),
                ("--pairs a,b", "without labels"),
                ("--beams 4", "a field of its recipe"),
                ("--length-penalty 1", "a field of its recipe"),
            )
        ),
        *(
            (f"evaluate {{made}}/writer --test {{made}}/pairs.jsonl {more}", more.split()[0], said)
            for more, said in (("--context 9", "one side"), ("--stride 2", "one side"), ("--max-tokens 9", "one side"))
        ),
        *(
            (f"evaluate {{road}}/run --data {{road}}/data {more} --against {{road}}/hf", more.split()[0], said)
            for more, said in (
                ("--report r.html", "one model"),
                ("--context 9", "one model"),
                ("--columns text=a", "no task"),
                ("--beams 4", "a model that translates"),
            )
        ),
    ],
    "compress": [
        *(
            (f"compress {{tuned}} --data {{made}}/rows.jsonl --dry-run {more}", more.split()[0], "nothing is made")
            for more in ("--out small", "--plot p.png", "--apply heads", "--target speed=2x", "--rival")
        ),
        ("compress {road}/run --data {road}/data --dry-run --columns text=a", "--columns", "a prepared directory"),
    ],
    "inspect": [("inspect spans {road}/run --data {road}/data", "--data", "no text is read")],
    "finetune": [
        (f"finetune {task} --model {{road}}/run --train {{made}}/rows.jsonl --dry-run {more}", option, said)
        for task, more, option, said in (
            ("classify", "--dev {made}/rows.jsonl --dev-share 0.2", "--dev-share", "no row of --train"),
            ("classify", "--dev {made}/rows.jsonl --folds 2", "--folds", "in turn"),
            ("classify", "--dev-share 0 --seeds 2", "--seeds", "put aside"),
            ("classify", "--dev-share 0 --patience 2", "--patience", "put aside"),
            ("classify", "--freeze --from-scratch", "--freeze", "fresh weights"),
            ("classify", "--freeze --layer-decay 0.9", "--layer-decay", "no rates"),
            ("classify", "--freeze --gradual-unfreezing", "--gradual-unfreezing", "never learns"),
            ("classify", "--from-scratch --continue-pretraining 5", "--continue-pretraining", "no pretraining"),
            ("classify", "--from-scratch --text {road}/corpus.txt", "--text", "no pretraining"),
            ("classify", "--word-vectors x.txt", "--word-vectors", "--from-scratch"),
            ("classify", "--freeze-word-vectors", "--freeze-word-vectors", "of a file"),
            ("classify", "--lm-weight 0.5", "--lm-weight", "lm_weight"),
            ("tag", "--columns tokens=text tags=text --unlabelled {made}/rows.jsonl", "--unlabelled", "only classify"),
            ("classify", "--architecture prefix", "--architecture", "texts that are written"),
            ("classify", "--decoder {road}/run", "--decoder", "texts that are written"),
            ("embed", "--features sum --columns text_a=text text_b=label", "--features", "the encoder is all"),
        )
    ],
    "predict": [("predict {tuned} {road}/corpus.txt --text --columns text=a", "--columns", "no columns")],
    "encode": [
        ("encode {road}/run {road}/corpus.txt --columns text=a", "--columns", "no columns"),
        ("encode {road}/run {road}/corpus.txt --json", "--json", "to standard output"),
    ],
    "generate": [
        *(
            (f"generate {{road}}/run the --beams 2 {more}", more.split()[0], "draws nothing")
            for more in ("--temperature 1", "--top-k 4", "--top-p 0.5", "--seed 0")
        ),
        *(
            (f"generate {{road}}/run the --temperature 0 {more}", more.split()[0], "draws nothing")
            for more in ("--top-k 4", "--top-p 0.5", "--seed 0", "--count 2")
        ),
        ("generate {road}/run the --length-penalty 1", "--length-penalty", "add --beams"),
    ],
    "translate": [
        ("translate {made}/writer a --out - --json", "--json", "standard output"),
        ("translate {made}/writer a b --alignment x.svg", "--alignment", "one text is drawn"),
    ],
    "export": [
        ("export {road}/run --to hf --precision int8 {out}", "--precision", "it is for --to onnx"),
        ("export {road}/run --to onnx --dimensions 64 {out}", "--dimensions", "it is for --to static and model2vec"),
    ],
    "convert": [
        ("convert {road}/run --refresh-global --max-length 64 {out}", "--max-length", "stay as they are"),
        ("convert {road}/run --refresh-global --attention-window 64 {out}", "--attention-window", "stay as they are"),
        ("convert {road}/run --refresh-global {out}", "--refresh-global", "global"),
    ],
    "vectors skipgram": [*TRAINING, NEGATIVE],
    "vectors cbow": [*TRAINING, NEGATIVE],
    "vectors fasttext": [
        *TRAINING,
        ("vectors fasttext {road}/corpus.txt {out} --hs", "--hs", "words are drawn against them"),
        ("vectors fasttext {road}/corpus.txt {out} --minn 4 --maxn 3", "--maxn", "in rising order"),
    ],
    "vectors glove": TRAINING,
    "vectors phrases": FILES,
    "vectors evaluate": [
        ("vectors evaluate {made}/v.txt --similarity {made}/v.txt --method add", "--method", "add --analogies")
    ],
    "vectors convert": [("vectors convert {made}/v.txt {made}/v.bin --no-header", "--no-header", "without a header")],
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small files, and a model that translates, of fresh weights."""
    folder = tmp_path_factory.mktemp("idle")
    write(folder / "rows.jsonl", rows(24))
    pandas.DataFrame(rows(24)).to_parquet(folder / "rows.parquet")
    write(folder / "pairs.jsonl", [{"en": "the red fox", "de": "der rote fuchs"}] * 3)
    (folder / "v.txt").write_text("a 1 0\nb 0 1\n")
    tokenizer = Tokenizer.train(["the red fox"] * 20, kind="wordpiece", vocab=64)
    small = recipe("transformer_mini")
    small.encoder.vocab = tokenizer.size
    save(TextEncoder(build(small).eval(), tokenizer, small), folder / "writer")
    return folder


def options_of(command: str) -> set[str]:
    return {action.option_strings[0] for action in parser_of(command)._actions if action.option_strings} - {"--help"}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_is_always_of_use_or_refused_where_it_is_not(command: str):
    always = set(ALWAYS[command].split())
    idle = {option for _, option, _ in IDLE.get(command, [])}
    assert options_of(command) == always | idle
    assert always & idle == set()


@pytest.mark.parametrize(
    ("line", "said"),
    [(line.replace("{command}", name), said) for name, cases in IDLE.items() for line, _, said in cases],
    ids=lambda value: value if " " in value else "",
)
def test_what_would_do_nothing_is_refused(
    line: str, said: str, road: Path, tuned: Path, made: Path, capsys: pytest.CaptureFixture[str]
):
    new = made / "new.safetensors" if line.startswith("vectors ") else made / "new"
    words = line.format(road=road, tuned=tuned, made=made, out=f"--out {new}").split()
    message = refused(capsys, *words)
    assert said in message
    assert not new.exists()
