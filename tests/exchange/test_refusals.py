"""What a Hugging Face class cannot hold must be refused by every family: a part that is lost on export is a lie."""

import pytest

import clozeworks as cw
from clozeworks.core.errors import RecipeError
from clozeworks.exchange import huggingface
from clozeworks.nn.mixers.attention import Attention
from clozeworks.nn.window import Window

SMALL = {
    "bert": "bert_tiny",
    "roberta": "roberta_mini",
    "albert": "albert_mini",
    "distilbert": "distilbert_mini",
    "ernie": "ernie_basic_mini",
    "openai-gpt": "gpt_mini",
    "transfo-xl": "transformer_xl_enwik8",
    "xlnet": "xlnet_base",
}


@pytest.mark.parametrize("family", SMALL)
def test_a_window_and_a_missing_norm_are_not_lost(family):
    r = cw.recipe(SMALL[family])
    r.objective.losses = tuple(loss for loss in r.objective.losses if "teacher" not in loss.needs.reads)
    huggingface.FAMILIES[family].write(r)
    block = r.encoder.stack.block_at(0)
    place, block.place = block.place, "none"
    with pytest.raises(RecipeError, match="has no such part"):
        huggingface.FAMILIES[family].write(r)
    block.place = place
    mixer = block.mixer
    assert isinstance(mixer, Attention)
    mixer.window = Window(4)
    with pytest.raises(RecipeError, match="has no such part"):
        huggingface.FAMILIES[family].write(r)
