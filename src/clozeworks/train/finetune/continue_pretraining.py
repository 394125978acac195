"""Pretraining that continues with the text of the task (Howard & Ruder 2018, 3.2; Gururangan et al. 2020)."""

import copy
import hashlib
import json
from pathlib import Path
from typing import Any

from clozeworks.core import atomic_io
from clozeworks.core.errors import InputError
from clozeworks.data.shards.corpus import MANIFEST
from clozeworks.data.shards.prepare import prepare
from clozeworks.data.tokens.given_words import joined
from clozeworks.inference.text_encoder import TextEncoder, load
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
DIGEST = "rows.json"  # of the texts that were prepared


def continue_pretraining(plan: Plan, run: Path, **how: Any) -> tuple[Result, TextEncoder]:
    """The encoder after so many steps more of its own objective on the texts of the rows, in directories of the run."""
    text, pretrained = (run / name for name in STAGES)
    recipe = make_recipe(plan.encoder.recipe, plan.options.continue_pretraining or 0, plan.options)
    texts = collect_texts(plan)
    digest = hashlib.sha256("\0".join(texts).encode("utf-8", "surrogatepass")).hexdigest()
    if not (text / MANIFEST).is_file():
        prepare([{"text": each} for each in texts], text, tokenizer=plan.tokenizer, heldout=HELDOUT)
        atomic_io.write_json(text / DIGEST, digest)
    elif not (text / DIGEST).is_file() or json.loads((text / DIGEST).read_text()) != digest:
        raise InputError(text, "the text of other rows", "a run resumes with its own", "choose another --out")
    done = pretrain(recipe, [(text, 1.0)], pretrained, source=plan.encoder.model, **how)
    return done, load(pretrained) if done.finished else plan.encoder


def make_recipe(recipe: Recipe, steps: int, options: FinetuneOptions | None = None) -> Recipe:
    """What the encoder was trained by, for some steps more at a lower rate.

    Where layers are to begin to learn one after another, this stage too has a rate for each and a slanted triangle
    (Howard & Ruder 2018, 3.2); here all of them learn from the first step.
    """
    if not recipe.objective.losses or recipe.task is not None:
        given = "a model without a pretraining objective" if recipe.task is None else "a fine-tuned model"
        needed = "its own objective is what would be continued"
        raise InputError(
            "--continue-pretraining", given, needed, "take the pretrained model, with its head, or leave it out"
        )
    recipe = copy.deepcopy(recipe)
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
