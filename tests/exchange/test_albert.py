"""ALBERT's directories, both ways, on random weights: groups, widths, and what no class there can hold."""

import json

import pytest
import torch

import clozeworks as cw
from clozeworks.core.errors import InputError, RecipeError
from clozeworks.exchange import huggingface
from clozeworks.inference.text_encoder import TextEncoder, load, save
from clozeworks.nn.norm import LayerNorm
from clozeworks.nn.positions import LearnedPositions
from clozeworks.nn.stack import Share
from clozeworks.recipe import Recipe, build
from tests.exchange.test_huggingface import SMALL, TOLERANCE, inputs

transformers = pytest.importorskip("transformers")

CLASSES = ("AlbertForPreTraining", "AlbertForMaskedLM", "AlbertModel")
LAYERS = 6


def their_model(name: str = "AlbertModel", **config):
    """A Hugging Face model with weights large enough that a mistake shows."""
    torch.manual_seed(0)
    shape = {**SMALL, "num_hidden_layers": LAYERS, "embedding_size": 20, **config}
    model = getattr(transformers, name)(transformers.AlbertConfig(**shape)).eval()
    randomise(model)
    model.tie_weights()
    return model


def randomise(model: torch.nn.Module) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.15)


def our_model(share: Share, width: int | None = 20, losses: bool = True, **embed) -> TextEncoder:
    r = cw.recipe("albert_mini")
    r.encoder.vocab, r.encoder.width, r.encoder.stack.depth, r.encoder.stack.share = 97, 48, LAYERS, share
    r.encoder.embed.width, r.encoder.embed.positions = width, LearnedPositions(128)
    for field, value in embed.items():
        setattr(r.encoder.embed, field, value)
    r.encoder.stack.block_at(0).mixer.heads = 4  # pyright: ignore[reportAttributeAccessIssue]
    r.encoder.stack.block_at(0).ffn.inner = 80  # pyright: ignore[reportOptionalMemberAccess]
    if not losses:
        r.objective.losses = ()
    torch.manual_seed(0)
    model = build(r).eval()
    randomise(model)
    return TextEncoder(model, None, r)


def batch() -> dict[str, torch.Tensor]:
    segments = (torch.arange(17) > 6).long().expand(4, 17).contiguous()
    return {**inputs(97, 0), "token_type_ids": segments}


def compare(theirs, ours: TextEncoder) -> None:
    """Hidden states of every layer and both kinds of logits."""
    with torch.no_grad():
        expected = theirs(**batch(), output_hidden_states=True)
    out = ours.forward(**batch())
    pairs = list(zip(out.hidden_states, expected.hidden_states, strict=True))
    name = type(theirs).__name__
    if name == "AlbertModel":
        pairs += [
            (out.last_hidden_state, expected.last_hidden_state),
            (out.pooler_output, expected.pooler_output),
        ]
    if name == "AlbertForMaskedLM":
        pairs.append((out.logits, expected.logits))
    if name == "AlbertForPreTraining":
        pairs += [(out.logits, expected.prediction_logits), (out.seq_relationship_logits, expected.sop_logits)]
    for mine, other in pairs:
        torch.testing.assert_close(mine, other, atol=TOLERANCE, rtol=1e-5)


def same(one: TextEncoder, other: TextEncoder) -> None:
    left, right = one.forward(**batch()), other.forward(**batch())
    for a, b in zip(left.hidden_states, right.hidden_states, strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("groups", [1, 2, LAYERS])
@pytest.mark.parametrize("name", CLASSES)
def test_their_directory_gives_the_same_numbers_here(name, groups, tmp_path):
    theirs = their_model(name, num_hidden_groups=groups)
    theirs.save_pretrained(tmp_path)
    ours = load(tmp_path)
    assert ours.unused == []
    assert ours.recipe.encoder.stack.share == (Share() if groups == LAYERS else Share(groups, groups))
    assert cw.count_parameters(ours.recipe) == sum(p.numel() for p in theirs.parameters())
    compare(theirs, ours)


@pytest.mark.parametrize("groups", [1, 2, LAYERS])
@pytest.mark.parametrize("name", CLASSES)
def test_our_directory_gives_the_same_numbers_there(name, groups, tmp_path):
    their_model(name, num_hidden_groups=groups).save_pretrained(tmp_path / "theirs")
    ours = load(tmp_path / "theirs")
    randomise(ours.model)
    save(ours, tmp_path / "ours", format="hf")
    compare(theirs_of(tmp_path / "ours", name), ours)
    again = load(tmp_path / "ours")
    assert again.recipe.encoder == ours.recipe.encoder
    for (left, a), (right, b) in zip(ours.model.named_parameters(), again.model.named_parameters(), strict=True):
        assert left == right
        assert torch.equal(a, b)


def theirs_of(directory, name: str):
    """What `from_pretrained` makes of a directory, in which it misses nothing."""
    config = json.loads((directory / "config.json").read_text())
    assert config["architectures"] == [name]
    model, report = getattr(transformers, name).from_pretrained(directory, output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    assert not report["mismatched_keys"]
    return model.eval()


@pytest.mark.parametrize("share", [Share(1, None), Share(None, 1), Share(2, 3), Share(1, 2), Share(3, None)], ids=str)
@pytest.mark.parametrize("width", [20, None])
def test_attention_or_ffn_alone_is_shared_by_copies_there(share, width, tmp_path):
    ours = our_model(share, width)
    save(ours, tmp_path / "ours", format="hf")
    theirs = theirs_of(tmp_path / "ours", "AlbertForPreTraining")
    assert theirs.config.num_hidden_groups == {"Share(1, 2)": 2}.get(f"Share({share.attention}, {share.ffn})", LAYERS)
    compare(theirs, ours)
    compare(theirs, load(tmp_path / "ours"))
    same(ours, load(tmp_path / "ours"))


@pytest.mark.parametrize("share", [Share(1, None), Share(None, 1)], ids=str)
def test_their_model_with_copied_groups_is_ours_that_shares(share):
    """Against their class directly, tensor by tensor, without our way out."""
    ours, theirs = our_model(share, losses=False), their_model(num_hidden_groups=LAYERS, max_position_embeddings=128)
    blocks = ours.model.encoder.stack.blocks
    pairs = [(("mixer.query", "mixer.key", "mixer.value", "mixer.out", "mixer_norm"), share.attention)]
    pairs += [(("ffn.up", "ffn.down", "ffn_norm"), share.ffn)]
    names = {"mixer.query": "attention.query", "mixer.key": "attention.key", "mixer.value": "attention.value"}
    names |= {"mixer.out": "attention.dense", "mixer_norm": "attention.LayerNorm", "ffn.up": "ffn"}
    names |= {"ffn.down": "ffn_output", "ffn_norm": "full_layer_layer_norm"}
    for parts, sets in pairs:
        for part in parts:
            for layer in range(LAYERS):
                source = blocks[0 if sets == 1 else layer].get_submodule(part)
                group = theirs.encoder.albert_layer_groups[layer].albert_layers[0]
                group.get_submodule(names[part]).load_state_dict(source.state_dict())
    embed, encoder = ours.model.encoder.embed, ours.model.encoder
    assert embed.positions is not None
    for mine, other in (
        (embed.words.table, theirs.embeddings.word_embeddings),
        (embed.positions.table, theirs.embeddings.position_embeddings),
        (embed.segments, theirs.embeddings.token_type_embeddings),
        (embed.norm, theirs.embeddings.LayerNorm),
        (embed.project, theirs.encoder.embedding_hidden_mapping_in),
        (encoder.pooler.dense if encoder.pooler else None, theirs.pooler),
    ):
        assert mine is not None
        other.load_state_dict(mine.state_dict())
    compare(theirs, ours)


@pytest.mark.parametrize("share", [Share(1, 1), Share(3, 3)], ids=str)
def test_where_the_widths_are_equal_the_projection_is_the_identity_there(share, tmp_path):
    ours = our_model(share, width=None)
    save(ours, tmp_path, format="hf")
    theirs = theirs_of(tmp_path, "AlbertForPreTraining")
    assert theirs.config.embedding_size == theirs.config.hidden_size
    assert torch.equal(theirs.albert.encoder.embedding_hidden_mapping_in.weight, torch.eye(48))
    compare(theirs, ours)
    again = load(tmp_path)
    assert again.model.encoder.embed.project is None
    assert not again.recipe.encoder.embed.project
    assert cw.count_parameters(again.recipe) == cw.count_parameters(ours.recipe)
    same(ours, again)


def test_another_projection_at_equal_widths_is_kept(tmp_path):
    theirs = their_model(embedding_size=48)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = load(tmp_path / "theirs")
    assert ours.recipe.encoder.embed.project
    compare(theirs, ours)
    save(ours, tmp_path / "ours", format="hf")
    compare(theirs_of(tmp_path / "ours", "AlbertModel"), ours)
    save(ours, tmp_path / "own")
    compare(theirs, load(tmp_path / "own"))
    with torch.no_grad():
        theirs.encoder.embedding_hidden_mapping_in.weight.copy_(torch.eye(48))
    theirs.save_pretrained(tmp_path / "biased")
    assert load(tmp_path / "biased").recipe.encoder.embed.project  # an identity, but its bias is not 0
    compare(theirs, load(tmp_path / "biased"))


@pytest.mark.parametrize("share", [Share(1, 1), Share(2, 2), Share(1, None), Share(None, 1)], ids=str)
def test_our_own_format_keeps_what_is_shared(share, tmp_path):
    ours = our_model(share)
    again = cw.load(cw.save(ours, tmp_path / "model"))
    assert again.recipe == ours.recipe
    assert len(list(again.model.parameters())) == len(list(ours.model.parameters()))
    for a, b in zip(ours.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(a, b)
    left, right = ours.forward(**batch()), again.forward(**batch())
    assert left.logits is not None
    assert right.logits is not None
    assert torch.equal(left.logits, right.logits)


def test_layers_inside_a_group_follow_one_another(tmp_path):
    theirs = their_model(num_hidden_layers=3, num_hidden_groups=3, inner_group_num=2)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = load(tmp_path / "theirs")
    assert ours.recipe.encoder.stack.depth == 6
    compare(theirs, ours)
    save(ours, tmp_path / "ours", format="hf")
    compare(theirs_of(tmp_path / "ours", "AlbertModel"), ours)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"inner_group_num": 2}, "groups of 2 layers that are used 6 times; .*follow one another"),
        ({"num_hidden_groups": 4}, "6 layers in 4 groups; .*one size"),
        ({"num_hidden_groups": 0}, "num_hidden_groups 0; a number from 1 on"),
        ({"num_hidden_layers": "six"}, "num_hidden_layers 'six'; a number from 1 on"),
        ({"num_hidden_layers": None}, "num_hidden_layers None; a number from 1 on"),
        ({"hidden_act": "mish"}, "hidden_act mish"),
        ({"embedding_size": "x"}, r"encoder\.embed\.width = 'x'"),
        ({"embedding_size": 24}, r"project\.weight of shape \(48, 20\)|words.* of shape \(97, 20\)"),
    ],
    ids=str,
)
def test_a_config_we_have_no_model_for(change, message, tmp_path):
    their_model().save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, **change}))
    with pytest.raises((InputError, RecipeError), match=message):
        load(tmp_path)


def test_a_config_that_leaves_out_what_is_usual(tmp_path):
    theirs = their_model(embedding_size=128)
    theirs.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    for name in ("embedding_size", "num_hidden_groups", "inner_group_num", "hidden_act", "hidden_dropout_prob"):
        del config[name]
    (tmp_path / "config.json").write_text(json.dumps(config))
    compare(theirs, load(tmp_path))
    del config["num_hidden_layers"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match="no field num_hidden_layers; it gives the model its shape"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("change", "path"),
    [
        (lambda r: setattr(r.encoder.embed, "narrow", "words"), "embed.narrow"),
        (lambda r: setattr(r.encoder.embed, "norm", None), "embed.norm"),
        (lambda r: setattr(r.encoder.embed, "dropout", 0.1), "embed.dropout"),
        (lambda r: setattr(r.encoder.stack.block_at(0), "place", "pre"), "stack.block.place"),
        (lambda r: setattr(r.encoder.stack, "norm", LayerNorm()), "stack.norm"),
    ],
)
def test_what_their_class_cannot_hold_is_refused(change, path, tmp_path):
    ours = our_model(Share(1, 1))
    change(ours.recipe)
    model = TextEncoder(build(ours.recipe).eval(), None, ours.recipe)
    with pytest.raises(RecipeError, match=rf"albert_mini\.encoder\.{path} = .*keep the model in its own format"):
        save(model, tmp_path / "ours", format="hf")
    assert not (tmp_path / "ours").exists()


def test_a_head_of_another_activation_is_refused(tmp_path):
    ours = our_model(Share(1, 1))
    ours.recipe.objective.losses[0].activation = "relu"  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(RecipeError, match=r"losses\.0 = .*the encoder's norm and activation"):
        save(ours, tmp_path / "ours", format="hf")


def test_no_class_there_has_sentence_order_alone(tmp_path):
    ours = our_model(Share(1, 1))
    ours.recipe.objective.losses = ours.recipe.objective.losses[1:]
    with pytest.raises(RecipeError, match=r"losses = sentence_pair: Hugging Face has AlbertForPreTraining"):
        save(TextEncoder(build(ours.recipe), None, ours.recipe), tmp_path / "ours", format="hf")


def test_layers_of_their_own_behind_a_table_of_full_width_are_bert(tmp_path):
    ours = our_model(Share(), width=None)
    save(ours, tmp_path, format="hf")
    assert json.loads((tmp_path / "config.json").read_text())["model_type"] == "bert"
    same(ours, load(tmp_path))


def test_a_shared_model_that_counts_positions_from_its_padding_is_the_same_without(tmp_path):
    ours = our_model(Share(1, 1), positions=LearnedPositions(128, offset=2))
    save(ours, tmp_path, format="hf")
    assert json.loads((tmp_path / "config.json").read_text())["model_type"] == "albert"
    ids = torch.randint(2, 97, (3, 11))
    mine, other = ours.forward(ids), load(tmp_path).forward(ids)
    torch.testing.assert_close(mine.last_hidden_state, other.last_hidden_state, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("groups", [1, 2, 6])
def test_names_go_there_and_back(groups):
    ours = our_model(Share(groups, groups))
    family = huggingface.FAMILIES["albert"]
    family = family.of({"num_hidden_layers": LAYERS, "num_hidden_groups": groups})
    for name, _ in ours.model.named_parameters():
        theirs = family.to_theirs(name)
        assert theirs is not None
        assert family.to_ours(theirs) == name


def test_the_recipe_is_understood_there(tmp_path):
    r = cw.recipe("albert_mini")
    r.encoder.vocab = 97
    ours = TextEncoder(build(r).eval(), None, r)
    save(ours, tmp_path / "ours", format="hf")
    theirs = transformers.AutoModelForPreTraining.from_pretrained(tmp_path / "ours").eval()
    assert theirs.config.classifier_dropout_prob == 0.1
    compare(theirs, ours)
    again = load(tmp_path / "ours").recipe
    assert isinstance(again, Recipe)
    assert again.encoder == r.encoder
    assert again.objective.losses == r.objective.losses


@pytest.mark.slow
def test_full_size(tmp_path):
    r = cw.recipe("albert_base")
    ours = TextEncoder(build(r).eval(), None, r)
    save(ours, tmp_path / "ours", format="hf")
    theirs = transformers.AlbertForPreTraining.from_pretrained(tmp_path / "ours").eval()
    assert sum(p.numel() for p in theirs.parameters()) == sum(p.numel() for p in ours.model.parameters())
    compare(theirs, ours)
