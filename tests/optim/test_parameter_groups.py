"""Which parameters decay, at which rate each layer learns, and a state that comes back bit for bit."""

import pytest
import safetensors.torch
import torch

from clozeworks.core.errors import InputError
from clozeworks.data.shards.corpus import Corpus
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.nn.stack import Share
from clozeworks.optim import parameter_groups
from clozeworks.optim.optimizers.layer_rates import Rates
from clozeworks.optim.settings import AdamW, EmbeddingRate, Lamb, LayerRates
from clozeworks.recipe import build
from clozeworks.recipes import recipe
from clozeworks.train.loop import fit
from clozeworks.train.pretrain import fit_to_data
from clozeworks.train.pretraining_batches import PretrainingBatches


def grouped(model: torch.nn.Module, decay: float = 0.01) -> dict[str, float]:
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    adam = parameter_groups.build_optimizer(model, AdamW(decay=decay), 1e-3)
    return {names[id(p)]: group["weight_decay"] for group in adam.param_groups for p in group["params"]}


def test_matrices_and_embeddings_decay_biases_and_norms_do_not(tiny):
    result = grouped(build(tiny()), decay=0.25)
    for name, decay in result.items():
        spared = name.endswith("bias") or "norm" in name
        assert decay == (0.0 if spared else 0.25), name
    assert result["encoder.embed.words.table.weight"] == 0.25
    assert result["heads.masked_lm.bias"] == 0.0


def test_shared_parameters_stand_once(tiny):
    recipe = tiny()
    recipe.encoder.stack.share = Share(attention=1, ffn=1)
    model = build(recipe)
    adam = parameter_groups.build_optimizer(model, AdamW(), 1e-3)
    listed = [id(p) for group in adam.param_groups for p in group["params"]]
    assert len(listed) == len(set(listed)) == len(list(model.parameters()))


def test_settings_arrive():
    adam = parameter_groups.build_optimizer(build(recipe("bert_tiny")), AdamW(betas=(0.8, 0.9), eps=1e-5), 0.125)
    for group in adam.param_groups:
        assert (group["lr"], group["betas"], group["eps"], group["fused"]) == (0.125, (0.8, 0.9), 1e-5, True)


def shares(model: torch.nn.Module, rates: float | Rates) -> dict[str, float]:
    """The share of the rate of every parameter, by the first of its names."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    rates = rates if isinstance(rates, Rates) else LayerRates(AdamW(), rates)
    adam = parameter_groups.build_optimizer(model, rates, 0.25)
    for group in adam.param_groups:
        assert group["lr"] == 0.25 * group["share"]
    return {names[id(p)]: group["share"] for group in adam.param_groups for p in group["params"]}


def test_rates_fall_by_the_factor_from_the_heads_down(tiny):
    r = tiny()
    r.encoder.stack.depth = 3
    model = build(r)
    actual = shares(model, 0.5)
    assert actual.keys() == dict(model.named_parameters()).keys()
    expected = {"heads.": 1.0, "encoder.pooler.": 1.0, "encoder.stack.blocks.2.": 0.5, "encoder.stack.blocks.1.": 0.25,
                "encoder.stack.blocks.0.": 0.125, "encoder.embed.": 0.0625}  # fmt: skip
    for name, share in actual.items():
        (wanted,) = {share for start, share in expected.items() if name.startswith(start)}
        assert share == wanted, name
    for name, share in shares(model, 1 / 2.6).items():
        if name.startswith("encoder.stack.blocks.1."):
            assert share == pytest.approx(2.6**-2)


def test_the_embedding_has_a_rate_of_its_own(tiny):
    model = build(tiny(2))
    alone, both = (shares(model, EmbeddingRate(inner, 0.25)) for inner in (AdamW(), LayerRates(AdamW(), 0.5)))
    assert alone.keys() == both.keys() == dict(model.named_parameters()).keys()
    for name, share in alone.items():
        assert share == (0.25 if name.startswith("encoder.embed.") else 1.0), name
    assert both["encoder.embed.words.table.weight"] == 0.25 * 0.5**3
    assert both["encoder.stack.blocks.0.ffn.up.weight"] == 0.5**2


def test_what_layers_share_has_the_rate_of_the_first_of_them(tiny):
    r = tiny()
    r.encoder.stack.depth = 4
    r.encoder.stack.share = Share(attention=2, ffn=1)
    result = shares(build(r), 0.5)
    assert result["encoder.stack.blocks.0.mixer.query.weight"] == 0.5**4
    assert result["encoder.stack.blocks.2.mixer.query.weight"] == 0.5**2
    assert result["encoder.stack.blocks.0.ffn.up.weight"] == 0.5**4
    assert not any(name.startswith(("encoder.stack.blocks.1.", "encoder.stack.blocks.3.")) for name in result)


def test_layers_of_ten_and_more_are_numbers(tiny):
    r = tiny()
    r.encoder.stack.depth = 12
    result = shares(build(r), 0.9)
    assert result["encoder.stack.blocks.11.ffn.up.bias"] == pytest.approx(0.9)
    assert result["encoder.stack.blocks.2.ffn.up.bias"] == pytest.approx(0.9**10)
    assert result["encoder.embed.words.table.weight"] == pytest.approx(0.9**13)


def test_layer_rates_keep_what_decays_and_what_is_adapted(tiny):
    model = build(tiny())
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    lamb = parameter_groups.build_optimizer(model, LayerRates(Lamb(decay=0.25), 0.5), 1e-3)
    for group in lamb.param_groups:
        for parameter in group["params"]:
            spared = names[id(parameter)].endswith("bias") or "norm" in names[id(parameter)]
            assert (group["weight_decay"], group["adapts"]) == ((0.0, False) if spared else (0.25, True))


def test_the_loop_gives_each_group_its_share(tiny, data):
    r = fit_to_data(tiny(2, optimizer=LayerRates(AdamW(), 0.5)), Tokenizer.load(data))
    model = build(r)
    adam = parameter_groups.build_optimizer(model, r.train.optimizer, 1.0)
    corpus = Corpus.open(data, "train")
    batches = iter(PretrainingBatches(r, [(corpus, 1.0)], Tokenizer.load(data).vocabulary()))
    for step in fit(model, batches, adam, lambda step: 0.01 * step, steps=2):
        assert step.learning_rate == 0.01 * step.number
        assert {group["lr"] / step.learning_rate for group in adam.param_groups} == {1.0, 0.5, 0.25, 0.125}
    batches.close()  # pyright: ignore[reportAttributeAccessIssue]


def test_one_rate_for_all_is_no_factor(tiny):
    one, other = build(tiny()), build(tiny())
    for model, part in ((one, LayerRates(AdamW(), 1.0)), (other, AdamW())):
        adam = parameter_groups.build_optimizer(model, part, 1e-2)
        assert len(adam.param_groups) == 2
        update(model, adam, 1)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def update(model: torch.nn.Module, adam: torch.optim.Optimizer, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator)
    adam.step()


def test_state_comes_back_bit_for_bit(tiny, tmp_path):
    one, other = build(tiny()), build(tiny())
    adam, adam2 = (parameter_groups.build_optimizer(model, AdamW(), 1e-2) for model in (one, other))
    update(one, adam, 1)
    update(one, adam, 2)
    update(other, adam2, 9)  # something to be overwritten
    safetensors.torch.save_file(parameter_groups.read_state(one, adam), tmp_path / "o.safetensors")
    other.load_state_dict(one.state_dict())
    parameter_groups.restore(other, adam2, safetensors.torch.load_file(tmp_path / "o.safetensors"))
    update(one, adam, 3)
    update(other, adam2, 3)
    for (name, a), b in zip(one.named_parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b), name
    for name, value in parameter_groups.read_state(one, adam).items():
        assert torch.equal(value, parameter_groups.read_state(other, adam2)[name]), name


def test_state_of_another_model_is_refused_by_name(tiny):
    model = build(tiny())
    adam = parameter_groups.build_optimizer(model, AdamW(), 1e-2)
    update(model, adam, 1)
    state = parameter_groups.read_state(model, adam)
    name = "heads.masked_lm.bias.exp_avg"
    with pytest.raises(InputError, match=r"masked_lm.bias.exp_avg.*shape \(3,\)"):
        parameter_groups.restore(model, adam, {**state, name: torch.zeros(3)})
    with pytest.raises(InputError, match="no such parameter"):
        parameter_groups.restore(model, adam, {**state, "heads.gone.bias.exp_avg": torch.zeros(3)})
