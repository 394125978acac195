"""Published parameter counts, to the unit, with nothing allocated."""

import pytest
import torch

import clozeworks as cw
from clozeworks.nn.ffn import FeedForward
from clozeworks.nn.mixers.attention import Attention
from clozeworks.objectives.losses.next_token import NextToken
from clozeworks.objectives.mask.ngrams import MaskNgrams
from clozeworks.objectives.segments import SentenceOrder
from clozeworks.optim.settings import Lamb
from clozeworks.recipe import build, count_parameters
from clozeworks.recipes import named, recipe

PUBLISHED = {  # recipe: (as pretrained, the published encoder class)
    "bert_base": (110_106_428, 109_482_240),
    "bert_large": (336_226_108, 335_141_888),
    "bert_base_chinese": (102_882_442, 102_267_648),
    "roberta_base": (124_697_433, 124_645_632),
    "roberta_large": (355_412_057, 355_359_744),
    "albert_base": (11_813_810, 11_683_584),
    "albert_large": (17_847_474, 17_683_968),
    "albert_xlarge": (59_021_490, 58_724_864),
    "albert_xxlarge": (223_158_450, 222_595_584),
    "distilbert_base": (66_985_530, 66_362_880),
    "xlnet_base": (116_750_336, 116_718_336),
    "xlnet_large": (360_300_800, 360_268_800),
    "longformer_base": (148_711_257, 148_659_456),
    "longformer_large": (434_653_273, 434_600_960),
    "transformer_xl_enwik8": (41_055_436, 41_055_232),  # the count of the published code has the bias of its words
    "adaptive_span_text8": (38_356_091, 38_342_240),  # the table of what is said is another than that of what is read
    "adaptive_span_large": (208_636_635, 208_615_872),
    "transformer_xl_base": (151_107_538, 150_838_570),  # and the entries of three clusters
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_counts_to_the_unit(name):
    assert (cw.count_parameters(name), cw.count_parameters(name, heads=False)) == PUBLISHED[name]


def test_the_count_of_the_largest_model_of_letters():
    """Dai et al. 2019, text8."""
    r = recipe("transformer_xl_enwik8")
    r.encoder.width, r.encoder.vocab, r.encoder.stack.depth = 1024, 27, 24
    r.encoder.stack.block_at(0).ffn = FeedForward(3072, "relu")
    assert count_parameters(r) == 277_050_395


def test_three_clusters_of_words_cost_three_entries_of_the_softmax():
    """The published code counts both numbers: with its run's `--adaptive`, and without it."""
    r = recipe("transformer_xl_base")
    r.encoder.embed.words, r.objective.losses = None, (NextToken(bias=True),)
    assert count_parameters(r) == 151_106_305 == 151_107_538 - 3 * (410 + 1)


@pytest.mark.parametrize("name", ["bert_tiny", "bert_mini", "roberta_mini", "albert_mini"])
def test_the_count_is_that_of_the_built_model(name):
    assert sum(p.numel() for p in build(recipe(name)).parameters()) == count_parameters(recipe(name))


def test_shapes_of_the_miniatures():
    shapes = {name: (r().encoder.stack.depth, r().encoder.width) for name, r in named().items()}
    assert shapes["bert_tiny"] == (2, 128)
    assert shapes["bert_mini"] == shapes["roberta_mini"] == shapes["albert_mini"] == (4, 256)
    assert shapes["bert_small"] == (4, 512)
    assert shapes["bert_medium"] == (8, 512)


def test_laptop_recipes_have_laptop_settings():
    names = ("bert_tiny", "bert_mini", "roberta_mini", "albert_mini", "distilbert_mini")
    for name in (*names, "transformer_xl_mini", "xlnet_mini"):
        r = recipe(name)
        assert r.longest() == 128
        assert r.train.batch_tokens == 4096


def test_the_variant_keeps_what_the_paper_keeps():
    r = recipe("roberta_large")
    assert r.encoder.stack.block_at(0).norm.eps == r.encoder.embed.norm.eps == 1e-5
    changes = cw.diff("roberta_base", "roberta_large")
    assert set(changes) == {
        "name",
        "encoder.width",
        "encoder.stack.depth",
        "encoder.stack.block.mixer.heads",
        "encoder.stack.block.ffn.inner",
        "train.learning_rate",
        "train.warmup",
    }


def test_the_difference_reads_like_the_abstract():
    """Two ways to fewer parameters, a loss about order; and what goes with them."""
    changes = {path: after for path, (_, after) in cw.diff("bert_base", "albert_base").items()}
    assert changes == {
        "name": "albert_base",
        "encoder.vocab": 30_000,
        "encoder.embed.width": 128,
        "encoder.stack.share.attention": 1,
        "encoder.stack.share.ffn": 1,
        "encoder.stack.block.ffn.activation": "gelu_tanh",
        "encoder.stack.block.mixer.dropout": 0.0,
        "encoder.stack.block.dropout": 0.0,
        "encoder.embed.dropout": 0.0,
        "objective.segments": SentenceOrder(length=512),
        "objective.corruption": MaskNgrams(longest=3),
        "objective.losses.0.activation": "gelu_tanh",
        "train.steps": 125_000,
        "train.batch_tokens": 4096 * 512,
        "train.learning_rate": 1.76e-3,
        "train.warmup": 3125,
        "train.optimizer": Lamb(),
        "train.phases": (),
    }


@pytest.mark.parametrize("name", ["large", "xlarge", "xxlarge"])
def test_sizes_differ_in_size_alone(name):
    changes = cw.diff("albert_base", f"albert_{name}")
    assert set(changes) <= {
        "name",
        "encoder.width",
        "encoder.stack.depth",
        "encoder.stack.block.mixer.heads",
        "encoder.stack.block.ffn.inner",
    }
    block = recipe(f"albert_{name}").encoder.stack.block_at(0)
    width = recipe(f"albert_{name}").encoder.width
    assert block.mixer == Attention(width // 64)
    assert block.ffn == FeedForward(4 * width, "gelu_tanh")


def test_fresh_weights_depend_on_the_seed_alone():
    r = recipe("bert_tiny")
    r.encoder.vocab = 50
    torch.manual_seed(1)
    first = build(r).state_dict()
    torch.manual_seed(2)
    second = build(r).state_dict()
    r.train.seed = 1
    third = build(r).state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["encoder.embed.words.table.weight"], third["encoder.embed.words.table.weight"])


def test_a_misspelt_recipe_gets_a_suggestion():
    with pytest.raises(cw.InputError, match="did you mean bert_base"):
        cw.recipe("bert_bse")
    assert "bert_mini" in cw.recipes()
