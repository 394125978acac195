"""What comes next, once there is a model."""

import shlex

from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.recipe import Recipe


def suggest_command(recipe: Recipe, model: str, tokenizer: Tokenizer | None) -> str:
    """The command that shows what a pretrained model has learnt."""
    place = shlex.quote(model)
    if recipe.decoder is not None:
        return f'clozeworks translate {place} "..."'
    if recipe.encoder.stack.directions == 2:
        return f"clozeworks finetune tag --model {place} --train train.jsonl --freeze --features mix --out tags"
    if not {"masked_lm", "permuted_lm", "next_token"} & {loss.name for loss in recipe.objective.losses}:
        return f"clozeworks finetune classify --model {place} --train train.jsonl --out classes"
    if recipe.reading == "causal":
        return f"clozeworks generate {place}"
    return f'clozeworks fill-mask {place} "... {tokenizer.names["mask"] if tokenizer else "[MASK]"} ..."'
