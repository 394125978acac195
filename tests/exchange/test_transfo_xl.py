"""Transformer-XL's directories, both ways, beside numbers of the last class that could read them."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from clozeworks.core.context import Context, Memory
from clozeworks.core.errors import InputError, RecipeError
from clozeworks.core.token_info import TokenInfo
from clozeworks.inference.text_encoder import TextEncoder, load, save
from clozeworks.nn.bias.within import Within
from clozeworks.nn.norm import LayerNorm
from clozeworks.objectives.losses.adaptive_next_token import AdaptiveNextToken
from tests.exchange.frozen.transfo_xl import CASES, FILE, LENGTH, SHAPE, tokens, weight

FROZEN: dict[str, Any] = json.loads(FILE.read_text())
TOLERANCE = 1e-5


def twin(name: str, shapes: dict[str, Any]) -> str | None:
    """The name under which a tied tensor is stored first."""
    if "inv_freq" in name:
        return None
    name = name.replace("crit.out_layers", "transformer.word_emb.emb_layers")
    if "out_projs" in name:
        there = name.replace("crit.out_projs", "transformer.word_emb.emb_projs")
        return there if there in shapes else "transformer.word_emb.emb_projs.0"
    return name if "r_net" in name or "emb_layers" in name else "transformer." + name.split(".")[-1]


def stored(case: str) -> dict[str, torch.Tensor]:
    """The state dict as their class saves it, each tied tensor under each of its names."""
    own, shapes = FROZEN[case]["own"], FROZEN[case]["shapes"]
    names = {name: name if name in own else twin(name, shapes) for name in shapes}
    return {name: weight(first or name, tuple(shapes[name])) for name, first in names.items()}


def config(case: str, name: str = "TransfoXLLMHeadModel") -> dict[str, Any]:
    return {"model_type": "transfo-xl", "architectures": [name], **SHAPE, **CASES[case]}


def written(folder: Path, state: dict[str, torch.Tensor], config: dict[str, Any]) -> Path:
    folder.mkdir()
    save_file(state, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@torch.no_grad()
def read(encoder: TextEncoder) -> tuple[torch.Tensor, torch.Tensor]:
    """Hidden states and log-probabilities of segments, each after those before it."""
    hidden, chances, past = [], [], None
    for segment in tokens().split(LENGTH, 1):
        position = torch.arange(LENGTH).expand_as(segment)
        side = TokenInfo.make(position, torch.zeros_like(segment), "causal")
        result = encoder.model.encoder(segment, side, Context.make(side, side, "causal", past=past))
        assert result.memory is not None
        past = Memory(result.memory.layers, result.memory.token_info.earlier(LENGTH))
        hidden.append(result.last)
        if encoder.language_head is not None:
            chances.append(encoder.language_head.logits(result.last).log_softmax(-1))
    return torch.cat(hidden, 1), torch.cat(chances, 1) if chances else torch.zeros(0)


def same_as_frozen(encoder: TextEncoder, case: str) -> None:
    encoder.model.encoder.stack.start = "zeros"  # as their class does
    hidden, chances = read(encoder)
    nll = -chances.gather(-1, tokens().roll(-1, 1)[..., None])[..., 0]
    for actual, wanted in ((hidden[0], "hidden"), (nll, "nll")):
        expected = torch.tensor(FROZEN[case][wanted]).view_as(actual)
        torch.testing.assert_close(actual, expected, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("twins", [True, False])
def test_hidden_states_and_losses_of_four_segments_are_theirs(case, twins, tmp_path):
    state = stored(case)
    if not twins:  # as a file that holds each tensor once
        state = {name: tensor for name, tensor in state.items() if name in FROZEN[case]["own"]}
    encoder = load(written(tmp_path / "theirs", state, config(case)))
    assert encoder.unused == []
    same_as_frozen(encoder, case)


@pytest.mark.slow
def test_a_pickle_is_opened_where_that_is_allowed(tmp_path):
    folder = tmp_path / "theirs"
    folder.mkdir()
    torch.save(stored("narrower"), folder / "pytorch_model.bin")
    (folder / "config.json").write_text(json.dumps(config("narrower")))
    with pytest.raises(InputError, match="a pickle"):
        load(folder)
    same_as_frozen(load(folder, allow_pickle=True), "narrower")


@pytest.mark.parametrize("case", CASES)
def test_ours_have_their_names_and_come_back(case, tmp_path):
    encoder = load(written(tmp_path / "theirs", stored(case), config(case)))
    save(encoder, tmp_path / "again", format="hf")
    report = json.loads((tmp_path / "again" / "config.json").read_text())
    assert {key: report[key] for key in config(case)} == config(case)
    state, expected = load_file(tmp_path / "again" / "model.safetensors"), stored(case)
    frequencies = state.pop("transformer.pos_emb.inv_freq")
    torch.testing.assert_close(frequencies, 1 / 10000 ** (torch.arange(0, 12, 2) / 12))
    for name, tensor in state.items():
        assert torch.equal(tensor, expected[name]), name
    assert set(FROZEN[case]["own"]) <= set(state)  # their tied ones are made by the class
    again = load(tmp_path / "again")
    assert again.recipe.encoder == encoder.recipe.encoder
    assert again.recipe.objective == encoder.recipe.objective
    for key, value in encoder.model.state_dict().items():
        assert torch.equal(again.model.state_dict()[key], value), key


@pytest.mark.parametrize("case", ["narrower", "one table"])
def test_a_bare_model_comes_and_goes(case, tmp_path):
    state = {name.removeprefix("transformer."): t for name, t in stored(case).items() if "crit" not in name}
    encoder = load(written(tmp_path / "theirs", state, config(case, "TransfoXLModel")))
    assert encoder.language_head is None
    encoder.recipe.encoder.stack.initial_memory = encoder.model.encoder.stack.start = "zeros"
    hidden, _ = read(encoder)
    expected = torch.tensor(FROZEN[case]["hidden"])
    torch.testing.assert_close(hidden[0], expected, rtol=TOLERANCE, atol=TOLERANCE)
    save(encoder, tmp_path / "again", format="hf")
    assert json.loads((tmp_path / "again" / "config.json").read_text())["architectures"] == ["TransfoXLModel"]
    again, _ = read(load(tmp_path / "again"))
    assert torch.equal(again, hidden)


def test_the_authors_count_their_clusters_from_the_end(tmp_path):
    """Their state dict has no prefix; u and v stand at the top."""
    theirs = {name.removeprefix("transformer."): tensor for name, tensor in stored("one table").items()}
    theirs = {name: tensor for name, tensor in theirs.items() if not name.endswith(("attn.r_w_bias", "attn.r_r_bias"))}
    for name in ("crit.cluster_weight", "crit.cluster_bias"):
        theirs[name] = theirs[name].flip(0)
    encoder = load(written(tmp_path / "theirs", theirs, config("one table") | {"untie_r": True}))
    assert encoder.recipe.encoder.stack.share.bias == 1
    same_as_frozen(encoder, "one table")


def test_what_the_model_is_made_of(tmp_path):
    narrower = load(written(tmp_path / "a", stored("narrower"), config("narrower"))).recipe
    assert narrower.encoder.embed.words is not None
    assert narrower.objective.losses == (AdaptiveNextToken(own=(0,)),)
    same = load(written(tmp_path / "b", stored("same length"), config("same length"))).recipe
    assert same.encoder.embed.words is None
    assert isinstance(getattr(same.encoder.stack.block_at(0).mixer, "bias", None), Within)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"attn_type": 2}, "attn_type 2; attn_type 0 is supported"),
        ({"d_head": 8}, "d_head 8; d_head 4 is supported"),
        ({"tie_projs": [False, False, True]}, None),
    ],
)
def test_what_we_have_no_part_for_is_refused(changes, message, tmp_path):
    folder = written(tmp_path / "theirs", stored("narrower"), config("narrower") | changes)
    if message is None:  # tied in the file, and free by the config
        assert load(folder).recipe.objective.losses == (AdaptiveNextToken(own=(0, 1)),)
        return
    with pytest.raises(InputError, match=message):
        load(folder)


def test_tensors_that_the_config_ties_must_be_equal(tmp_path):
    for name in ("crit.out_projs.1", "crit.out_layers.2.weight"):
        state = stored("narrower")
        state[name] = state[name] + 1
        with pytest.raises(InputError, match="differs from its tied twin"):
            load(written(tmp_path / name, state, config("narrower")))


def test_what_their_class_has_no_part_for_is_refused(tmp_path):
    encoder = load(written(tmp_path / "theirs", stored("narrower"), config("narrower")))
    encoder.recipe.encoder.stack.norm = LayerNorm()
    with pytest.raises(RecipeError, match="no such part"):
        save(encoder, tmp_path / "again", format="hf")
