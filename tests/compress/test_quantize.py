"""int8 models: near the model they were made of, a quarter of its bytes, the same bits in a fresh process."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch

import clozeworks as cw
from clozeworks.compress.data import Data
from clozeworks.compress.quantize import Quantize, quantize, rank_parts
from clozeworks.compress.step import parse_steps
from clozeworks.core.errors import InputError
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.exchange.grow import grow
from clozeworks.exchange.lengthen import lengthen
from clozeworks.inference.text_encoder import TextEncoder
from clozeworks.nn.int8 import products
from clozeworks.nn.int8.parts import Int8, Int8Linear, quantizable
from clozeworks.recipe import build
from clozeworks.recipes import recipe

WORDS = "the fox sees a red stone near old tree small hen eats under large house and runs".split()  # noqa: SIM905
TEXTS = [" ".join(np.random.default_rng(n).choice(WORDS, 3 + n % 20)) for n in range(40)]


@pytest.fixture(autouse=True)
def int8(monkeypatch):
    monkeypatch.setenv(products.CHOICE, "1")


def make(name: str, deviation: float = 0.08) -> TextEncoder:
    tokenizer = Tokenizer.train(TEXTS, vocab=90)
    r = recipe(name)
    r.encoder.vocab, r.encoder.init = tokenizer.size, deviation
    return TextEncoder(build(r).eval(), tokenizer, r)


@pytest.fixture(scope="module")
def encoder() -> TextEncoder:
    return make("bert_tiny")


def cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)


def test_vectors_stay_near_and_the_old_model_stays_as_it_is(encoder):
    before = encoder.encode(TEXTS)
    small = Quantize().apply(encoder, Data())
    assert isinstance(small, TextEncoder)
    assert cosines(before, small.encode(TEXTS)).min() > 0.99
    assert encoder.recipe.encoder.int8 is None
    assert np.array_equal(before, encoder.encode(TEXTS))


def test_weights_are_the_rounded_ones(encoder):
    small = quantize(encoder)
    for name, part in quantizable(encoder.model).items():
        new = small.model.get_submodule(name)
        assert isinstance(new.quantized, torch.nn.Parameter)
        assert ((new.weight - part.weight).abs() <= new.scale[:, None] * 0.5001).all()
        if isinstance(new, Int8Linear):
            assert torch.equal(new.bias, part.bias)


def test_a_fresh_process_gives_the_same_bits_from_a_smaller_file(encoder, tmp_path):
    small = Quantize().apply(encoder, Data())
    cw.save(encoder, tmp_path / "large")
    cw.save(small, tmp_path / "small")
    sizes = {name: (tmp_path / name / "model.safetensors").stat().st_size for name in ("large", "small")}
    assert sizes["small"] < 0.4 * sizes["large"], "tiny: norms, positions and heads are a large part"
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    code = f"""
import sys, numpy as np, clozeworks as cw
there = {str(tmp_path)!r}
small = cw.load(there + "/small")
np.save(there + "/vectors.npy", small.encode(open(there + "/texts.txt").read().split("\\n")))
cw.save(small, there + "/again")
"""
    subprocess.run([sys.executable, "-c", code], env=dict(os.environ), check=True)
    assert np.array_equal(np.load(tmp_path / "vectors.npy"), small.encode(TEXTS))
    files = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("small", "again")]
    assert files[0] == files[1]


@pytest.mark.parametrize("name", ["albert_mini", "roberta_mini", "gpt_mini", "transformer_xl_mini", "xlnet_mini"])
def test_families_are_quantized_saved_and_loaded(name, tmp_path):
    large = make(name)
    small = Quantize().apply(large, Data())
    cw.save(small, tmp_path / "small")
    loaded = cw.load(tmp_path / "small")
    assert loaded.recipe == small.recipe
    ids = torch.tensor([[5, 6, 7, 8, 9, 10]])
    states = [each.forward(ids).last_hidden_state for each in (large, small, loaded)]
    assert torch.equal(states[1], states[2])
    assert cosines(*(state[0].numpy() for state in states[:2])).min() > 0.98


def test_what_suffers_stays_fp32(encoder):
    """One inner unit is huge and read by nobody: rounded by its size, the others are nothing."""
    hurt = make("bert_tiny")
    with torch.no_grad():
        ffn = hurt.model.get_submodule("encoder.stack.blocks.1.ffn")
        ffn.up.bias[0], ffn.down.weight[:, 0] = 2000.0, 0.0
    plain = cosines(hurt.encode(TEXTS), quantize(hurt).encode(TEXTS)).min()
    small = Quantize(cosine=0.999, most=2).apply(hurt, Data(TEXTS))
    kept = small.recipe.encoder.int8.fp32
    assert 1 <= len(kept) <= 2
    assert kept[0] == "encoder.stack.blocks.1.ffn.down"
    assert cosines(hurt.encode(TEXTS), small.encode(TEXTS)).min() > plain
    assert Quantize(cosine=0.5).apply(hurt, Data(TEXTS)).recipe.encoder.int8 == Int8()


def test_shared_parts_are_ranked_together():
    shared = make("albert_mini")
    ranked = rank_parts(shared, TEXTS[:8], shared.encode(TEXTS[:8]))
    depth = shared.recipe.encoder.stack.depth
    assert {len(names) for names, _ in ranked} == {1, depth}
    names = next(names for names, _ in ranked if len(names) == depth)
    assert quantize(shared, names).recipe.encoder.int8.fp32 == names


def test_a_masked_model_still_fills_masks(encoder):
    small = quantize(encoder)
    assert len(small.fill_mask("the fox [MASK] a stone")) == 5


def test_what_is_int8_is_refused(encoder, tmp_path):
    small = quantize(encoder)
    for action in (
        lambda: Quantize().apply(small, Data()),
        lambda: grow(small, small.tokenizer.add_tokens(["foxstone"])[0]),
        lambda: lengthen(small),
        lambda: cw.save(small, tmp_path / "hf", format="hf"),
    ):
        with pytest.raises(InputError, match=r"an int8 model; .* needs weights in fp32"):
            action()
    assert not (tmp_path / "hf").exists()


def test_one_line_of_text_is_refused(encoder):
    with pytest.raises(InputError, match="1 texts; the smallest cosine of fewer than 8"):
        Quantize().apply(encoder, Data(["one line"]))


def test_weights_of_another_type_are_refused(encoder, tmp_path):
    cw.save(encoder, tmp_path / "model")
    small = quantize(encoder)
    cw.save(small, tmp_path / "small")
    (tmp_path / "small" / "model.safetensors").write_bytes((tmp_path / "model" / "model.safetensors").read_bytes())
    with pytest.raises(InputError, match="quantized"):
        cw.load(tmp_path / "small")


def test_the_command_line_finds_it():
    assert parse_steps("int8") == (Quantize(),)
    assert parse_steps("int8=0.995") == (Quantize(cosine=0.995),)
