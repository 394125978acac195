"""The whole road on text that is already here, from a tokenizer to a model to take away and a task that it learned.

    out/  data/ (tokenizer and shards)  run/ (recipe, metrics, checkpoints)  model/ (for transformers)  loss.png
          area/ (a task, fine-tuned)  area-fresh/ (the same from fresh weights)

Each stage is the function behind a command. What an earlier call has finished is not done again.
"""

import itertools
import shlex
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.text import Text

from clozeworks import corpus
from clozeworks.data.shards.corpus import MANIFEST, Corpus
from clozeworks.data.shards.prepare import prepare
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.evaluate.text import evaluate_text
from clozeworks.inference.text_encoder import TextEncoder, load, save
from clozeworks.plots import charts
from clozeworks.quickstart.classifier import learn_areas
from clozeworks.quickstart.clozes import show_guesses
from clozeworks.quickstart.messages import CLOSING, LEGENDS, MESSAGES, METRIC_NAMES
from clozeworks.recipe import Recipe, build
from clozeworks.recipes.cloze import cloze_tiny
from clozeworks.screen.console import closing
from clozeworks.screen.drawing import drawn, legend
from clozeworks.screen.heldout import show_heldout
from clozeworks.screen.progress_bar import Bar
from clozeworks.train import metrics_log
from clozeworks.train.listing import METRICS
from clozeworks.train.pretrain import fit_to_data, pretrain
from clozeworks.train.pretraining_batches import make_epoch

VOCAB, HELDOUT, STEPS = 4096, 0.05, 2400


def run(lang: str, out: Path, steps: int | None, seed: int, console: Console) -> int:
    """Walk the road; 0, or 128 and the signal's number if it was interrupted and can be resumed."""
    messages = MESSAGES[lang]
    say = lambda name, **values: console.print(Text(f"\n{messages[name].format(**values)}", "bold"), soft_wrap=True)  # noqa: E731
    recipe = recipe_for(lang, steps, seed)
    finished = (out / "model").is_dir()
    if finished:
        say("again", out=out)
    else:
        console.print(Text(messages["title"].format(threads=torch.get_num_threads()), "bold"))

    data = out / "data"
    say("text")
    text, heldout, tokenizer = prepared(lang, data, console)
    console.print(messages["counts"].format(**asdict(text.counts), heldout=heldout.counts.documents))
    say("tokenizer", size=tokenizer.size)
    console.print(cut_words(text, tokenizer))
    if not finished:
        say("examples")
        show_examples(recipe, text, tokenizer, lang, console)

    recipe = fit_to_data(recipe, tokenizer)
    fresh = TextEncoder(build(recipe).eval(), tokenizer, recipe)
    parameters = sum(parameter.numel() for parameter in fresh.model.parameters())
    shape = recipe.encoder
    say("training", depth=shape.stack.depth, width=shape.width, parameters=parameters, steps=recipe.train.steps)
    done = pretrain(recipe, [(data, 1.0)], out / "run", console=console)
    if not done.finished:
        console.print(f"\n{done.notes[-1]}")
        return 128 + done.signal
    console.print(messages["took"].format(seconds=done.seconds))

    trained = load(out / "run")
    say("sentences")
    show_guesses(fresh, trained, text, heldout, lang, console)
    metrics = evaluate_text(trained, data)
    say("heldout", count=metrics["count"])
    show_heldout(console, metrics, METRIC_NAMES[lang])
    # The masked loss alone, which is what the baseline compares with.
    rows = [{**row, "loss": row["masked_lm"]} for row in metrics_log.read(out / "run" / METRICS) if "masked_lm" in row]
    charts.loss_curve(rows, out / "loss.png", messages["plot"], metrics["unigram_loss"], lang)
    say("task")
    signal = learn_areas(trained, lang, out, seed, console)
    if signal:
        return 128 + signal
    if not finished:
        save(trained, out / "model", format="hf")
    name = shlex.quote(str(out))
    closing(
        console,
        messages["wrote"].format(out=out),
        f'clozeworks fill-mask {name}/model "{messages["ask"]}"',
        f'echo "{messages["read"]}" | clozeworks predict {name}/area --text',
        f"clozeworks evaluate {name}/run --data {name}/data",
        f"clozeworks pretrain cloze --data {name}/data --budget 10m --dry-run",
        words=CLOSING[lang],
    )
    return 0


def recipe_for(lang: str, steps: int | None, seed: int) -> Recipe:
    """Our own smallest encoder, for eighty seconds on two cores; LOG.md has what was tried."""
    r = cloze_tiny()
    r.train.steps, r.train.seed = steps or STEPS, seed
    r.train.evaluate_every = max(1, r.train.steps // 6)
    return r


# ---- text


def prepared(lang: str, data: Path, console: Console) -> tuple[Corpus, Corpus, Tokenizer]:
    """The embedded text to train on and to evaluate on, and its tokenizer; of Chinese a third, which is more than the
    run can read."""
    if not (data / MANIFEST).is_file():
        texts = itertools.islice(corpus.documents(lang), 0, None, 3 if lang == "zh" else 1)
        with Bar(console) as bar:
            prepare(texts, data, vocab=VOCAB, lang=lang, heldout=HELDOUT, progress=bar.update)
    return Corpus.open(data, "train"), Corpus.open(data, "heldout"), Tokenizer.load(data)


def cut_words(text: Corpus, tokenizer: Tokenizer, count: int = 6) -> str:
    """Some words of the text that the tokenizer cuts into several pieces: assert·ion·s."""
    tokens, starts, _ = text.take(np.array([0]), np.array([min(len(text), 20_000)]))
    words: dict[str, None] = {}
    begins = np.flatnonzero(starts)
    for begin, end in itertools.pairwise(begins.tolist()):
        pieces = [tokenizer.token(token).removeprefix("##") for token in tokens[begin:end]]
        if 2 <= len(pieces) <= 4 and all(len(piece) > 2 or not piece.isascii() for piece in pieces):
            words["·".join(pieces)] = None
        if len(words) == count:
            break
    return "   ".join(words)


def show_examples(recipe: Recipe, text: Corpus, tokenizer: Tokenizer, lang: str, console: Console) -> None:
    """Two short examples, in colour."""
    epoch = make_epoch(recipe, text, tokenizer, recipe.train.seed, 0)
    short = np.flatnonzero(epoch.plan.lengths > 20)[:2]
    ragged = epoch.examples(short)
    legend(console, tokenizer, LEGENDS[lang])
    for at in range(len(short)):
        console.print()
        for line in drawn(ragged, at, tokenizer, recipe.objective.segments, width=console.width):
            console.print(line)
