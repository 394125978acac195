"""One table of config fields a family, in both directions."""

import pytest

import clozeworks as cw
from clozeworks.core import spec
from clozeworks.core.errors import InputError, RecipeError
from clozeworks.exchange import huggingface
from clozeworks.exchange.config_table import NONE_AS_MINUS_ONE, ConfigTable, Constant, Field
from clozeworks.exchange.names import bert, distilbert, marian, openai_gpt, reformer, transfo_xl, xlnet
from clozeworks.nn.norm import LayerNorm
from clozeworks.nn.stack import Share

SMALL = {
    "bert": "bert_tiny",
    "roberta": "roberta_mini",
    "albert": "albert_mini",
    "distilbert": "distilbert_mini",
    "ernie": "ernie_basic_mini",
    "openai-gpt": "gpt_mini",
    "transfo-xl": "transformer_xl_enwik8",
    "xlnet": "xlnet_base",
    "longformer": "longformer_mini",
    "reformer": "reformer_mini",
    "marian": "transformer_mini",
}
TABLES = (bert, distilbert, marian, openai_gpt, reformer, transfo_xl, xlnet)


def small(family: str):
    r = cw.recipe(SMALL[family])
    r.objective.losses = tuple(loss for loss in r.objective.losses if "teacher" not in loss.needs.reads)
    if r.decoder is not None:
        r.decoder.start, r.decoder.end = 1, 2
    return r


@pytest.mark.parametrize("family", SMALL)
def test_a_config_that_was_written_is_read_and_written_the_same(family):
    r, names = small(family), huggingface.FAMILIES[family]
    config = names.write(r)
    again = names.read(config, tuple(loss.name for loss in r.objective.losses))
    again.name = r.name
    if family == "marian":  # rows of the recipe, which no config says
        again.objective.segments = r.objective.segments
    for name, value in names.write(again).items():
        if name not in ("mem_len", "use_mems_eval", "reuse_len") or family != "xlnet":  # its memory is no weight
            assert value == config[name], name


@pytest.mark.parametrize("family", SMALL)
def test_a_block_without_residuals_is_not_lost(family):
    """No field of any config speaks of it: what is read back differs."""
    r = small(family)
    for layer in range(r.encoder.stack.depth):
        r.encoder.stack.block_at(layer).residual = False
    with pytest.raises(RecipeError, match=r"encoder\.stack\.block\.residual = False: .*has no such part"):
        huggingface.FAMILIES[family].write(r)


@pytest.mark.parametrize("names", TABLES, ids=lambda names: names.__name__.rpartition(".")[2])
def test_no_field_and_no_path_stands_twice(names):
    fields = [field.name for field in names.TABLE.fields]
    paths = [path for field in names.TABLE.fields if isinstance(field, Field) for path in (field.path, *field.also)]
    assert len(fields) == len(set(fields))
    assert len(paths) == len(set(paths))


def test_what_a_config_leaves_out_has_its_default_or_is_named():
    config = bert.TABLE.write(cw.recipe("bert_tiny"))
    del config["hidden_dropout_prob"], config["hidden_act"]
    block = bert.TABLE.read(config).encoder.stack.block_at(0)
    assert (block.dropout, block.ffn and block.ffn.activation) == (0.1, "gelu")
    del config["hidden_size"]
    with pytest.raises(KeyError, match="hidden_size"):
        bert.TABLE.read(config)


def test_values_that_we_have_no_part_for_are_refused():
    config = bert.TABLE.write(cw.recipe("bert_tiny"))
    with pytest.raises(InputError, match=r"hidden_act quick_gelu; one of gelu, .*, tanh is supported"):
        bert.TABLE.read(config | {"hidden_act": "quick_gelu"})
    with pytest.raises(InputError, match="position_embedding_type relative_key; absolute positions are supported"):
        bert.TABLE.read(config | {"position_embedding_type": "relative_key"})
    assert bert.TABLE.read(config | {"position_embedding_type": None, "unheard_of": 1})


def test_an_activation_that_no_config_names_is_refused():
    r = cw.recipe("gpt_mini")
    ffn = r.encoder.stack.block_at(0).ffn
    assert ffn is not None
    ffn.activation = "tanh"
    with pytest.raises(RecipeError, match=r"gpt_mini\.encoder\.stack\.block\.ffn\.activation = tanh"):
        openai_gpt.TABLE.write(r)


def test_a_value_that_stands_at_several_paths_is_one():
    r = cw.recipe("bert_tiny")
    r.encoder.embed.norm = LayerNorm(1e-5)
    with pytest.raises(RecipeError, match=r"bert_tiny\.encoder\.embed\.norm\.eps = 1e-05"):
        bert.TABLE.write(r)


def test_the_same_model_in_another_spelling_has_the_same_config():
    r = cw.recipe("bert_tiny")
    config, stack = bert.TABLE.write(r), r.encoder.stack
    stack.share, r.encoder.embed.width = Share(stack.depth, stack.depth), r.encoder.width
    stack.block = (stack.block_at(0),) * stack.depth
    before = spec.to_dict(r)
    assert bert.TABLE.write(r) == config
    assert spec.to_dict(r) == before  # nothing of the caller's is changed


def test_a_table_derived_from_another():
    table = bert.TABLE.derive(bert.blank, names={"dim": "hidden_size"}, defaults={"dim": 7}, without=("hidden_act",))
    config = table.write(cw.recipe("bert_tiny"))
    assert "hidden_size" not in config
    assert "hidden_act" not in config
    del config["dim"]
    assert table.read(config).encoder.width == 7


def test_values_that_are_written_otherwise():
    assert [NONE_AS_MINUS_ONE.read(value) for value in (-1, 0, 5)] == [None, None, 5]
    assert [NONE_AS_MINUS_ONE.write(value) for value in (None, 5)] == [-1, 5]
    table = ConfigTable(bert.blank, (Constant("always", 3),))
    assert table.read({"always": 4}).encoder.width == 0  # without a sentence nothing is refused
