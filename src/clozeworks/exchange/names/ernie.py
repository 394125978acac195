"""ERNIE's names and config: BERT's under another prefix, and task types that only later versions have."""

from typing import Any

from torch import Tensor

from clozeworks.exchange.names import Family, bert
from clozeworks.objectives.mask.phrases import MaskPhrases
from clozeworks.recipe import Recipe

HEADS = {name.replace("Bert", "Ernie"): losses for name, losses in bert.HEADS.items()}
TASKS = "encoder.embed.tasks"  # read, never built
NAMES = (*bert.encoder_names("ernie."), (TASKS, "ernie.embeddings.task_type_embeddings"), *bert.HEAD_NAMES)


def read(config: dict[str, Any], losses: tuple[str, ...]) -> Recipe:
    recipe = bert.read(config, losses)
    recipe.objective.corruption = MaskPhrases(stage="basic")
    return recipe


def import_hook(config: dict[str, Any], recipe: Recipe, tensors: dict[str, Tensor]) -> None:
    """Task 0, the one of masked text, is part of every segment row: a sum of both is all that the encoder sees."""
    tasks, segments = tensors.pop(f"{TASKS}.weight", None), "encoder.embed.segments.weight"
    if tasks is not None and config.get("use_task_id") and segments in tensors:
        tensors[segments] = tensors[segments] + tasks[0]


def write(recipe: Recipe) -> dict[str, Any]:
    config = bert.write(recipe, HEADS)
    return {**config, "model_type": "ernie", "use_task_id": False}


FAMILY = Family(
    model_type="ernie",
    names=NAMES,
    tied=bert.TIED,
    prefix="ernie.",
    read=read,
    write=write,
    import_hook=import_hook,
    heads=bert.task_heads("Ernie"),
)
