"""Random architectures of every family: each is exported and gives the same scores in `transformers`, or is refused."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import clozeworks as cw
from clozeworks.core.batch import from_padded
from clozeworks.core.errors import RecipeError
from clozeworks.inference.text_encoder import TextEncoder, save
from clozeworks.nn.activation import Activation
from clozeworks.nn.norm import LayerNorm
from clozeworks.nn.positions import LearnedPositions, Rotary, SinusoidalPositions
from clozeworks.nn.stack import Share
from clozeworks.objectives.losses.masked_lm import MaskedLM
from clozeworks.objectives.mask.tokens import MaskTokens
from clozeworks.recipe import Recipe, build

transformers = pytest.importorskip("transformers")

BASES = {
    "bert": "bert_tiny",
    "roberta": "roberta_mini",
    "albert": "albert_mini",
    "distilbert": "distilbert_mini",
    "ernie": "ernie_basic_mini",
    "gpt": "gpt_mini",
    "xlnet": "xlnet_mini",
    "longformer": "longformer_mini",
    "reformer": "reformer_mini",
    "marian": "transformer_mini",
    "roformer": "roberta_mini",  # with rotary positions
}
VOCAB, LENGTH = 61, 24
ACTIVATIONS: tuple[Activation, ...] = ("gelu", "gelu_tanh", "relu", "silu", "tanh")
Change = Callable[[Recipe, random.Random], None]


def blocks(recipe: Recipe) -> list[Any]:
    stacks = [recipe.encoder.stack, *([recipe.decoder.stack] if recipe.decoder else [])]
    return [stack.block_at(layer) for stack in stacks for layer in range(stack.depth)]


def shrink(recipe: Recipe, draw: random.Random) -> None:
    """Sizes that build at once, drawn anew for each model."""
    encoder, heads = recipe.encoder, draw.choice((1, 2, 4))
    encoder.vocab, encoder.width = VOCAB, heads * draw.choice((4, 8))
    for stack in (encoder.stack, *([recipe.decoder.stack] if recipe.decoder else [])):
        stack.depth = draw.choice((1, 2, 3, 4))
    inner = 4 * encoder.width if recipe.name == "gpt_mini" else draw.choice((8, 24, 40))
    for block in blocks(recipe):
        block.mixer.heads, block.ffn.inner = heads, inner
        if block.cross is not None:
            block.cross.heads = heads
    if encoder.embed.width is not None:
        encoder.embed.width = draw.choice((4, 8, encoder.width))
    if hasattr(encoder.embed.positions, "shape"):
        first = draw.choice((2, encoder.width - 2))
        encoder.embed.positions.shape, encoder.embed.positions.widths = (8, 16), (first, encoder.width - first)
    if recipe.decoder is not None:
        recipe.decoder.start, recipe.decoder.end = VOCAB - 1, 0


def set_blocks(name: str, *values: Any) -> Change:
    def change(recipe: Recipe, draw: random.Random) -> None:
        value = draw.choice(values)
        for block in blocks(recipe) if draw.random() < 0.8 else blocks(recipe)[:1]:
            holder, _, last = name.rpartition(".")
            setattr(getattr(block, holder) if holder else block, last, value)

    return change


def set_embed(name: str, *values: Any) -> Change:
    return lambda recipe, draw: setattr(recipe.encoder.embed, name, draw.choice(values))


def set_stack(name: str, *values: Any) -> Change:
    return lambda recipe, draw: setattr(recipe.encoder.stack, name, draw.choice(values))


def change_epsilons(recipe: Recipe, draw: random.Random) -> None:
    """Of every norm, the head's too, or of layers alone."""
    norm, everywhere = LayerNorm(draw.choice((1e-12, 1e-5, 1e-3))), draw.random() < 0.7
    for block in blocks(recipe):
        block.norm = norm
    embed, stack = recipe.encoder.embed, recipe.encoder.stack
    embed.norm = norm if embed.norm and everywhere else embed.norm
    stack.norm = norm if stack.norm and everywhere else stack.norm
    for loss in recipe.objective.losses:
        if isinstance(loss, MaskedLM) and everywhere:
            loss.norm = norm


def change_activation(recipe: Recipe, draw: random.Random) -> None:
    activation, heads = draw.choice(ACTIVATIONS), draw.random() < 0.7
    for block in blocks(recipe):
        block.ffn.activation = activation
    for loss in recipe.objective.losses:
        if isinstance(loss, MaskedLM) and heads:
            loss.activation = activation


def share(recipe: Recipe, draw: random.Random) -> None:
    sets = [None, *(count for count in range(1, 5) if recipe.encoder.stack.depth % count == 0)]
    recipe.encoder.stack.share = Share(draw.choice(sets), draw.choice(sets))


def drop_losses(recipe: Recipe, draw: random.Random) -> None:
    kept = [loss for loss in recipe.objective.losses if draw.random() < 0.5]
    recipe.objective.losses = tuple(kept) if recipe.decoder is None else recipe.objective.losses


def mask_tokens(recipe: Recipe, draw: random.Random) -> None:
    recipe.objective.corruption = MaskTokens()
    recipe.objective.losses = (MaskedLM(plain=draw.random() < 0.7),)


CHANGES: tuple[Change, ...] = (
    change_activation,
    change_activation,
    change_epsilons,
    change_epsilons,
    share,
    drop_losses,
    mask_tokens,
    set_blocks("place", "pre", "post"),
    set_blocks("residual", False),
    set_blocks("dropout", 0.0, 0.3),
    set_blocks("ffn.dropout", 0.1),
    set_blocks("mixer.dropout", 0.0, 0.2),
    set_embed("segments", 0, 1, 2, 3),
    set_embed("scale", True, False),
    set_embed("narrow", "words", "all"),
    set_embed("project", True),
    set_embed("width", 4, 12),
    set_embed("norm", None),
    set_embed("dropped", "words"),
    set_embed("positions", LearnedPositions(128), LearnedPositions(140, 2), SinusoidalPositions(), None),
    set_stack("norm", LayerNorm(), None),
    set_stack("memory", 4),
    set_stack("initial_memory", "zeros"),
)


def draw_model(seed: int) -> TextEncoder:
    """The next model by a seed that can be built, with weights large enough that a mistake shows."""
    draw = random.Random(seed)
    family = draw.choice(list(BASES))
    while True:
        recipe = cw.recipe(BASES[family])
        recipe.objective.losses = tuple(loss for loss in recipe.objective.losses if "teacher" not in loss.needs.reads)
        if family == "roformer":
            recipe.encoder.embed.positions = recipe.encoder.pooler = None
            recipe.encoder.stack.block_at(0).mixer.rotary = Rotary()  # pyright: ignore[reportAttributeAccessIssue]
        shrink(recipe, draw)
        for change in draw.sample(CHANGES, draw.choice((0, 1, 1, 2, 3))):
            change(recipe, draw)
        try:
            model = build(recipe).eval()
        except RecipeError:
            continue
        torch.manual_seed(seed)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if parameter.is_floating_point() and not (family == "reformer" and name.endswith("masked_lm.bias")):
                    parameter.normal_(0, 0.2).add_(1 if "norm.weight" in name else 0)
        return TextEncoder(model, None, recipe)


def compare(ours: TextEncoder, directory: Path, seed: int) -> None:
    """Hold scores, or the vectors of a model without a head, to those of the class that the directory names."""
    name = json.loads((directory / "config.json").read_text())["architectures"][0]
    theirs, report = getattr(transformers, name).from_pretrained(directory, output_loading_info=True)
    theirs.eval()
    missing = {key for key in report["missing_keys"] if "pooler" not in key and "mask_emb" not in key}
    assert not missing
    generator = torch.Generator().manual_seed(seed)
    ids, more = (torch.randint(2, VOCAB - 1, (2, LENGTH), generator=generator) for _ in range(2))
    inputs: dict[str, Any] = {"input_ids": ids}
    with torch.no_grad():
        if ours.recipe.decoder is not None:
            batch = from_padded(more, kind="causal").replace(source=from_padded(ids))
            hidden = ours.model.read(batch, ()).last
            head: Any = ours.model.head("next_token")
            torch.testing.assert_close(
                head.logits(hidden), theirs(**inputs, decoder_input_ids=more).logits, rtol=1e-4, atol=1e-5
            )
            return
        if ours.recipe.encoder.embed.segments > 1:
            inputs["token_type_ids"] = (torch.arange(LENGTH) > 9).long().expand(2, LENGTH).contiguous()
        mine, other = ours.forward(**inputs), theirs(**inputs)
    pairs = (
        ("logits", "prediction_logits" if "prediction_logits" in other else "logits"),
        ("seq_relationship_logits", "seq_relationship_logits"),
        ("last_hidden_state", "last_hidden_state"),
    )
    compared = 0
    for our_name, their_name in pairs:
        if their_name in other and getattr(mine, our_name) is not None:
            expected = other[their_name]
            if expected.shape[-1] != 2 or our_name != "logits":
                torch.testing.assert_close(getattr(mine, our_name), expected, rtol=1e-4, atol=1e-5)
                compared += 1
    if name.endswith("NextSentencePrediction"):
        torch.testing.assert_close(mine.seq_relationship_logits, other.logits, rtol=1e-4, atol=1e-5)
        compared += 1
    assert compared


def check(seed: int, folder: Path) -> str:
    """What became of the model of a seed: the class it was exported as, or why it was refused."""
    ours = draw_model(seed)
    try:
        save(ours, folder / "out", format="hf")
    except RecipeError as error:
        refusal = str(error)
    else:
        refusal = None
    if refusal is not None:
        assert not (folder / "out").exists()
        assert ours.recipe.name in refusal
        return refusal
    compare(ours, folder / "out", seed)
    return "exported"


@pytest.mark.parametrize("seed", range(12))
def test_an_export_is_the_same_model_or_is_refused(seed, tmp_path):
    check(seed, tmp_path)


def test_some_are_exported_and_some_refused(tmp_path):
    """A generator that were refused always, or never, would test nothing."""
    fates: set[bool] = set()
    for seed in range(12):
        fates.add(check(seed, tmp_path / str(seed)) == "exported")
        if len(fates) == 2:
            return
    raise AssertionError(f"exported: {fates}")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 200))
def test_many_exports(seed, tmp_path):
    check(seed, tmp_path)
