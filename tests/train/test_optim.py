"""Which parameters decay, and a state that comes back bit for bit."""

import pytest
import safetensors.torch
import torch

from clozeworks.errors import InputError
from clozeworks.nn.stack import Share
from clozeworks.pretraining import build
from clozeworks.recipes import recipe
from clozeworks.train import optim
from clozeworks.train.settings import AdamW


def grouped(model: torch.nn.Module, decay: float = 0.01) -> dict[str, float]:
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    adam = optim.optimizer(model, AdamW(decay=decay), 1e-3)
    return {names[id(p)]: group["weight_decay"] for group in adam.param_groups for p in group["params"]}


def test_matrices_and_embeddings_decay_biases_and_norms_do_not(tiny):
    found = grouped(build(tiny()), decay=0.25)
    for name, decay in found.items():
        spared = name.endswith("bias") or "norm" in name
        assert decay == (0.0 if spared else 0.25), name
    assert found["encoder.embed.words.table.weight"] == 0.25
    assert found["heads.masked_lm.bias"] == 0.0


def test_shared_parameters_stand_once(tiny):
    recipe = tiny()
    recipe.encoder.stack.share = Share(attention=1, ffn=1)
    model = build(recipe)
    adam = optim.optimizer(model, AdamW(), 1e-3)
    listed = [id(p) for group in adam.param_groups for p in group["params"]]
    assert len(listed) == len(set(listed)) == len(list(model.parameters()))


def test_settings_arrive():
    adam = optim.optimizer(build(recipe("bert_tiny")), AdamW(betas=(0.8, 0.9), eps=1e-5), 0.125)
    for group in adam.param_groups:
        assert (group["lr"], group["betas"], group["eps"], group["fused"]) == (0.125, (0.8, 0.9), 1e-5, True)


def update(model: torch.nn.Module, adam: torch.optim.Optimizer, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator)
    adam.step()


def test_state_comes_back_bit_for_bit(tiny, tmp_path):
    one, other = build(tiny()), build(tiny())
    adam, adam2 = (optim.optimizer(model, AdamW(), 1e-2) for model in (one, other))
    update(one, adam, 1)
    update(one, adam, 2)
    update(other, adam2, 9)  # something to be overwritten
    safetensors.torch.save_file(optim.state_of(one, adam), tmp_path / "o.safetensors")
    other.load_state_dict(one.state_dict())
    optim.restore(other, adam2, safetensors.torch.load_file(tmp_path / "o.safetensors"))
    update(one, adam, 3)
    update(other, adam2, 3)
    for (name, a), b in zip(one.named_parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b), name
    for name, value in optim.state_of(one, adam).items():
        assert torch.equal(value, optim.state_of(other, adam2)[name]), name


def test_state_of_another_model_is_refused_by_name(tiny):
    model = build(tiny())
    adam = optim.optimizer(model, AdamW(), 1e-2)
    update(model, adam, 1)
    state = optim.state_of(model, adam)
    name = "heads.masked_lm.bias.exp_avg"
    with pytest.raises(InputError, match=r"masked_lm.bias.exp_avg.*shape \(3,\)"):
        optim.restore(model, adam, {**state, name: torch.zeros(3)})
    with pytest.raises(InputError, match="no such parameter"):
        optim.restore(model, adam, {**state, "heads.gone.bias.exp_avg": torch.zeros(3)})
