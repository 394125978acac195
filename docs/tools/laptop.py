"""The commands that train a recipe, or the small one of its family, on a laptop: from text to a model directory."""

from dataclasses import dataclass

from clozeworks.exchange.huggingface import fits
from clozeworks.nn.bidirectional import Bidirectional
from clozeworks.objectives.mask import MaskPhrases
from clozeworks.recipe import Recipe

SMALL = 200_000_000  # tokens of a whole training that two cores read in hours, not in weeks
TOKENIZERS = {
    "roberta_base": "bytes",
    "albert_base": "unigram",
    "gpt": "bpe",
    "transformer_base": "bytes",
    "transformer_xl_mini": "bpe",
    "adaptive_span_text8": "chars",
    "lite_transformer_lm": "bpe",
    "elmo_base": "words",
    "nnlm": "words",
}  # of the paper, for a recipe and all made from it
CHINESE = ("chinese", "wwm", "ernie")  # words in the names of recipes that were made for Chinese
ASKED = {"en": "The value must be a {mask}.", "zh": "中国经济{mask}展很快。"}


@dataclass(frozen=True, slots=True)
class Laptop:
    name: str  # of the recipe that is trained
    commands: list[str]
    needs: str = ""  # what its text must have, as a sentence


def laptop_of(name: str, made: dict[str, Recipe], kin: dict[str, str | None]) -> Laptop:
    """How to train a recipe by name, or if it is too large the one that stands for it."""
    small = stand_in(name, made)
    recipe, run = made[small], f"run-{small}"
    lang = "zh" if any(word in small.split("_") for word in CHINESE) else "en"
    kind = next((TOKENIZERS[each] for each in line(small, kin) if each in TOKENIZERS), "wordpiece")
    text, needs = "corpus.txt", ""
    if isinstance(recipe.objective.corruption, MaskPhrases) and recipe.objective.corruption.stage != "basic":
        text = "annotated.jsonl"
        needs = "Its text has to be annotated: see [MaskPhrases](../masks/phrases.md)."
    if recipe.decoder is not None:
        text = "pairs.jsonl --pairs en,de"
        needs = "Its text is pairs of sentences; see [the decoder](../encoder_decoder.md)."
    commands = [f"clozeworks prepare {text} --lang {lang} --tokenizer {kind} --out data"]
    teacher = ""
    if any("teacher" in loss.needs.reads for loss in recipe.objective.losses):
        needs = "It learns from a model that is trained first; see [Distillation](../distillation.md)."
        commands.append("clozeworks pretrain bert_mini --data data --out run-bert_mini")
        teacher = " --teacher run-bert_mini"
    asked = f'clozeworks fill-mask {run} "{ASKED[lang].format(mask="<mask>" if kind == "bytes" else "[MASK]")}"'
    causal = recipe.objective.corruption is not None and recipe.objective.corruption.kind == "causal"
    if recipe.decoder is not None:
        asked, causal = f'clozeworks translate {run} "A red house."', False
    if isinstance(recipe.encoder.stack, Bidirectional):
        features = "--train train.jsonl --freeze --features mix --out tags"
        asked, causal = f"clozeworks finetune tag --model {run} {features}", False
    commands += [
        f"clozeworks pretrain {small} --data data --out {run}{teacher}",
        f"clozeworks evaluate {run} --data data",
        f'clozeworks generate {run} "The first"' if causal else asked,
    ]
    if fits(recipe):
        commands.append(f"clozeworks export {run} --to hf --out my-{small.replace('_', '-')}")
    return Laptop(small, commands, needs)


def stand_in(name: str, made: dict[str, Recipe]) -> str:
    """The recipe itself if it is small, else the mini with the longest beginning in common, else itself."""
    if small(made[name]):
        return name
    words = name.split("_")
    for count in range(len(words), 0, -1):
        begin = "_".join(words[:count])
        if (other := f"{begin}_mini") in made:
            return other
        near = [each for each in made if each.startswith(f"{begin}_") and small(made[each])]
        if near:
            return next((each for each in near if each.endswith("_mini")), near[0])
    return name


def small(recipe: Recipe) -> bool:
    return recipe.train.steps * recipe.train.batch_tokens <= SMALL


def line(name: str, kin: dict[str, str | None]) -> list[str]:
    """The recipe, what it is made from, and so on to the root."""
    parts: list[str] = []
    at: str | None = name
    while at is not None:
        parts.append(at)
        at = kin[at]
    return parts
