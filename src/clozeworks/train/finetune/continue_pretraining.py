"""Pretraining that continues with the text of the task, and with other text of its domain (Howard & Ruder 2018, 3.2;
Gururangan et al. 2020)."""

import copy
import hashlib
import itertools
import json
from pathlib import Path
from typing import Any

from clozeworks.core import atomic_io
from clozeworks.core.errors import InputError
from clozeworks.data.shards.corpus import MANIFEST, Corpus
from clozeworks.data.shards.prepare import prepare
from clozeworks.data.text.reader import Reader
from clozeworks.data.tokens.given_words import joined
from clozeworks.inference.text_encoder import TextEncoder, load
from clozeworks.objectives.losses.masked_lm import MaskedLM
from clozeworks.objectives.mask.tokens import MaskTokens
from clozeworks.objectives.objective import Objective
from clozeworks.objectives.segments import FullSentences
from clozeworks.optim.settings import LayerRates, SlantedTriangular
from clozeworks.recipe import Recipe
from clozeworks.train.finetune.options import FinetuneOptions
from clozeworks.train.finetune.plan import Plan
from clozeworks.train.finetune.recipe import WIDTH
from clozeworks.train.pretrain import pretrain
from clozeworks.train.run import Result
from clozeworks.train.run_dir import STAGES

RATE = 1e-4  # of RoBERTa on the text of a task (Gururangan et al. 2020, appendix)
RECURRENT = 4e-3  # of recurrent models (Howard & Ruder 2018, 4.1)
HELDOUT = 0.05
LENGTH, TOKENS = 128, 2048  # of a row and of a step, where a model does not say how it was pretrained
DIGEST = "rows.json"  # of the texts that were prepared


def continue_pretraining(plan: Plan, run: Path, **how: Any) -> tuple[Result, TextEncoder]:
    """The encoder after so many steps more of its own objective on the texts of the rows, in directories of the run.

    Text of the domain is read beside them, as much of each as there is: files as `prepare` reads them, or what it
    wrote with the tokenizer of the model.
    """
    text, pretrained = (run / name for name in STAGES)
    recipe = make_recipe(plan.encoder.recipe, plan.options.pretraining_steps, plan.options)
    prepared = [path for path in map(Path, plan.options.text) if (path / MANIFEST).is_file()]
    files = [path for path in map(Path, plan.options.text) if path not in prepared]
    texts = collect_texts(plan)
    named = "\0".join([*texts, *map(str, files)])
    digest = hashlib.sha256(named.encode("utf-8", "surrogatepass")).hexdigest()
    if not (text / MANIFEST).is_file():
        documents = Reader(files).documents() if files else ()
        prepare(itertools.chain(texts, documents), text, tokenizer=plan.tokenizer, heldout=HELDOUT)
        atomic_io.write_json(text / DIGEST, digest)
    elif not (text / DIGEST).is_file() or json.loads((text / DIGEST).read_text()) != digest:
        raise InputError(text, "the text of other rows", "a run resumes with its own", "choose another --out")
    data = [(each, float(len(Corpus.open(each, "train", verify="size")))) for each in (text, *prepared)]
    done = pretrain(recipe, data, pretrained, source=plan.encoder.model, **how)
    return done, load(pretrained) if done.finished else plan.encoder


def make_recipe(recipe: Recipe, steps: int, options: FinetuneOptions | None = None) -> Recipe:
    """What the encoder was trained by, for some steps more at a lower rate.

    Where layers are to begin to learn one after another, this stage too has a rate for each and a slanted triangle
    (Howard & Ruder 2018, 3.2); here all of them learn from the first step.
    """
    if recipe.task is not None or (not recipe.objective.losses and recipe.reading == "causal"):
        given = "a model without a pretraining objective" if recipe.task is None else "a fine-tuned model"
        needed = "its own objective is what would be continued"
        raise InputError(
            "--continue-pretraining", given, needed, "take the pretrained model, with its head, or leave it out"
        )
    recipe = copy.deepcopy(recipe)
    if not recipe.objective.losses:  # an encoder alone, such as one that makes vectors of sentences
        length = min(LENGTH, recipe.length)
        recipe.objective = Objective(FullSentences(length=length), MaskTokens(), (MaskedLM(),))
        recipe.train.batch_tokens = TOKENS
    usual = RECURRENT if recipe.recurrent else RATE * max(WIDTH / recipe.encoder.width, 1.0)
    recipe.train.learning_rate = min(usual, recipe.train.learning_rate)
    recipe.train.steps, recipe.train.warmup = steps, 0.1
    if options is not None and options.factor is not None:
        recipe.train.optimizer = LayerRates(recipe.train.optimizer, options.factor)
    if options is not None and options.gradual_unfreezing:
        recipe.train.schedule = SlantedTriangular()
    recipe.train.save_every = recipe.train.evaluate_every = max(steps // 4, 1)
    return recipe


def collect_texts(plan: Plan) -> list[str]:
    """What a reader of the rows reads, each text once."""
    texts = []
    for row in plan.train.rows:
        for name in plan.task.columns:
            value = row[name]
            if isinstance(value, str):
                texts.append(value)
            elif isinstance(value, list | tuple) and all(isinstance(each, str) for each in value):
                texts.append(joined(value))
    return [text for text in dict.fromkeys(texts) if text.strip()]
