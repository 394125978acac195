"""A decoder beside torch's own, packed beside alone, and what is refused before anything is built."""

import copy

import pytest
import torch
from torch import Tensor, nn

from clozeworks.core.batch import Batch, from_padded
from clozeworks.core.dropout import DropoutKey
from clozeworks.core.errors import RecipeError
from clozeworks.core.spec import check, from_dict, set_path, to_dict
from clozeworks.model import Model
from clozeworks.nn.bidirectional import Bidirectional
from clozeworks.nn.embed import Embed
from clozeworks.nn.mixers.attention import Attention
from clozeworks.nn.mixers.lightconv import LightConv
from clozeworks.nn.positions import SinusoidalPositions
from clozeworks.nn.stack import Share
from clozeworks.objectives.mask import MaskTokens
from clozeworks.objectives.permute import Permute
from clozeworks.recipe import Recipe, build, count_parameters
from clozeworks.recipes import recipe
from clozeworks.train.resources.cost import measure_cost
from tests.toys import batch_of, packed

WIDTH, VOCAB = 32, 50


def small(**paths: str) -> Recipe:
    r = recipe("transformer_mini")
    r.encoder.width, r.encoder.vocab = WIDTH, VOCAB
    assert r.decoder is not None
    for stack in (r.encoder.stack, r.decoder.stack):
        block = stack.block_at(0)
        block.mixer, stack.depth = Attention(4), 2
        assert block.ffn is not None
        block.ffn.inner = 48
        block.cross = Attention(4) if block.cross is not None else None
    for path, value in paths.items():
        set_path(r, path.replace("__", "."), value)
    return r


def pair(targets: list[int], sources: list[int], seed: int = 0) -> Batch:
    """Padded rows of these lengths, every token but padding predicted."""
    generator = torch.Generator().manual_seed(seed)

    def rows(lengths: list[int], kind) -> Batch:
        real = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
        return from_padded(torch.randint(VOCAB, real.shape, generator=generator), real, kind=kind)

    batch = rows(targets, "causal")
    batch.source = rows(sources, "full")
    batch.targets = (batch.token_info.document == 0).flatten().nonzero()[:, 0]
    batch.labels = torch.randint(VOCAB, batch.targets.shape, generator=generator)
    return batch


def torch_layers(model: Model, decoder: bool) -> nn.Module:
    """torch's layers with our weights: no norm after the last, as in the paper."""
    assert model.decoder is not None
    blocks = (model.decoder if decoder else model.encoder).stack.blocks
    kind, pile = (
        (nn.TransformerDecoderLayer, nn.TransformerDecoder) if decoder
        else (nn.TransformerEncoderLayer, nn.TransformerEncoder)
    )  # fmt: skip
    layer = kind(WIDTH, 4, 48, dropout=0.0, layer_norm_eps=1e-5, batch_first=True)
    theirs = pile(layer, len(blocks), norm=None, **({} if decoder else {"enable_nested_tensor": False}))
    names = {"mixer": "self_attn", "cross": "multihead_attn"} if decoder else {"mixer": "self_attn"}
    norms = ("mixer_norm", "cross_norm", "ffn_norm") if decoder else ("mixer_norm", "ffn_norm")
    with torch.no_grad():
        for ours, mine in zip(blocks, theirs.layers, strict=True):
            for name, there in names.items():
                attention, target = getattr(ours, name), getattr(mine, there)
                three = [attention.query, attention.key, attention.value]
                target.in_proj_weight.copy_(torch.cat([each.weight for each in three]))
                target.in_proj_bias.copy_(torch.cat([each.bias for each in three]))
                target.out_proj.load_state_dict(attention.out.state_dict())
            for number, name in enumerate(norms, 1):
                getattr(mine, f"norm{number}").load_state_dict(getattr(ours, name).state_dict())
            mine.linear1.load_state_dict(ours.ffn.up.state_dict())
            mine.linear2.load_state_dict(ours.ffn.down.state_dict())
    return theirs


def randomised(model: Model) -> Model:
    """Biases and norms that are not 0 and 1, so that none can be forgotten."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
    return model


def by_formula(model: Model, batch: Batch, encoder: nn.Module, decoder: nn.Module) -> Tensor:
    """The sum of cross-entropies through torch's layers, with the paper's embedding written out."""
    assert batch.source is not None
    assert batch.labels is not None
    table = model.encoder.embed.words.table.weight

    def embedded(tokens: Tensor) -> Tensor:
        position, unit = torch.arange(tokens.shape[1])[:, None], torch.arange(WIDTH)
        angle = position / 10_000 ** (unit // 2 * 2 / WIDTH)
        return table[tokens] * WIDTH**0.5 + torch.where(unit % 2 == 0, angle.sin(), angle.cos())

    gone = batch.source.token_info.document != 0
    memory = encoder(embedded(batch.source.tokens), src_key_padding_mask=gone)
    length = batch.tokens.shape[1]
    later = torch.ones(length, length, dtype=torch.bool).triu(1)
    y = decoder(embedded(batch.tokens), memory, tgt_mask=later, memory_key_padding_mask=gone)
    logits = y[batch.token_info.document == 0] @ table.t()
    return nn.functional.cross_entropy(logits, batch.labels, reduction="sum", label_smoothing=0.1)


def test_loss_and_gradients_are_those_of_torchs_layers():
    model = randomised(build(small(objective__losses="[NextToken(smoothing=0.1, spread=all)]")))
    batch = pair([5, 9, 1], [7, 3, 8])
    encoder, decoder = torch_layers(model, False), torch_layers(model, True)
    expected = by_formula(model, batch, encoder, decoder)
    table = model.encoder.embed.words.table.weight
    theirs = torch.autograd.grad(expected, [table, *encoder.parameters(), *decoder.parameters()])
    loss = model(batch).losses["next_token"]
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-5)
    loss.backward()
    assert table.grad is not None
    torch.testing.assert_close(table.grad, theirs[0], rtol=1e-4, atol=1e-4)
    actual = dict(zip(
        [f"e.{n}" for n, _ in encoder.named_parameters()] + [f"d.{n}" for n, _ in decoder.named_parameters()],
        theirs[1:], strict=True))  # fmt: skip
    assert model.decoder is not None
    for side, part in (("e", model.encoder), ("d", model.decoder)):
        for number, block in enumerate(part.stack.blocks):
            for name, there in (("mixer", "self_attn"), ("cross", "multihead_attn")):
                if (attention := getattr(block, name)) is not None:
                    three = [attention.query.weight.grad, attention.key.weight.grad, attention.value.weight.grad]
                    joined = actual[f"{side}.layers.{number}.{there}.in_proj_weight"]
                    torch.testing.assert_close(torch.cat(three), joined, rtol=1e-3, atol=1e-4)
            up = actual[f"{side}.layers.{number}.linear1.weight"]
            torch.testing.assert_close(block.ffn.up.weight.grad, up, rtol=1e-3, atol=1e-4)


def test_packed_pairs_are_pairs_alone():
    model = randomised(build(small()))
    lengths = [[(3, 4), (5, 2), (4, 6)], [(9, 3), (2, 9)]]  # (target, source) of each pair of a row
    target = packed([[t for t, _ in row] for row in lengths], 13, "causal")
    source = packed([[s for _, s in row] for row in lengths], 12)
    generator = torch.Generator().manual_seed(0)
    batch = batch_of(target, torch.randint(VOCAB, (2, 13), generator=generator))
    batch.source = batch_of(source, torch.randint(VOCAB, (2, 12), generator=generator))
    whole = model.read(batch, ()).last
    for row, pairs in enumerate(lengths):
        at, begin = 0, 0
        for t, s in pairs:
            alone = from_padded(batch.tokens[row : row + 1, at : at + t], kind="causal")
            alone.source = from_padded(batch.source.tokens[row : row + 1, begin : begin + s])
            torch.testing.assert_close(model.read(alone, ()).last[0], whole[row, at : at + t], rtol=1e-4, atol=1e-5)
            at, begin = at + t, begin + s


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_places_alone_give_the_same_loss(dropout: float):
    """The last block computes no more than what is predicted, and drops of it what it would among all."""
    r = small()
    r.encoder.embed.dropout = dropout
    assert r.decoder is not None
    for stack in (r.encoder.stack, r.decoder.stack):
        stack.block_at(0).dropout = dropout
    model, batch = randomised(build(r)), pair([5, 9, 1], [7, 3, 8])
    key = DropoutKey.make(1, 2, rows=range(3)) if dropout else None
    loss = model(batch, key).losses["next_token"]
    assert batch.targets is not None
    assert batch.labels is not None
    layers = model.read(batch, (), key=key).last  # nobody says what is read: everything is computed
    picked = layers.flatten(0, 1)[batch.targets]
    logits = picked @ model.encoder.embed.words.table.weight.t()
    q = torch.full_like(logits, 0.1 / (VOCAB - 1)).scatter(1, batch.labels[:, None], 0.9)
    torch.testing.assert_close(loss, -(q * logits.log_softmax(-1)).sum(), rtol=1e-5, atol=1e-5)
    hidden = model.read(batch, model.specs, key=key).last
    assert hidden.isnan().any()
    torch.testing.assert_close(hidden.flatten(0, 1)[batch.targets], picked)


def test_nothing_leaks_from_later_words_or_other_rows():
    model, batch = randomised(build(small())), pair([6, 6], [5, 5])
    assert batch.source is not None
    before = model.read(batch, ()).last
    changed = batch.replace(tokens=batch.tokens.clone())
    changed.tokens[0, 4] = (changed.tokens[0, 4] + 1) % VOCAB
    after = model.read(changed, ()).last
    assert torch.equal(before[0, :4], after[0, :4])
    assert not torch.allclose(before[0, 4:], after[0, 4:])
    assert torch.equal(before[1], after[1])
    other = copy.deepcopy(batch)
    assert other.source is not None
    other.source.tokens[0, -1] = (other.source.tokens[0, -1] + 1) % VOCAB
    seen = model.read(other, ()).last
    assert (before[0] - seen[0]).abs().amax(-1).gt(1e-6).all()  # every word reads all of its source
    assert torch.equal(before[1], seen[1])


def test_recomputing_gives_the_same_gradients():
    model, batch = build(small()), pair([5, 9], [7, 3])
    results = []
    for recompute in (False, True):
        for stack in model.stacks:
            stack.recompute = recompute
        model.zero_grad()
        model(batch, DropoutKey.make(0, 1, rows=range(2))).losses["next_token"].backward()
        results.append([parameter.grad for parameter in model.parameters()])
    torch.testing.assert_close(results[1], results[0], rtol=1e-6, atol=1e-7)


def test_one_table_or_two():
    shared, own = small(), small()
    assert own.decoder is not None
    own.decoder.embed = Embed(SinusoidalPositions("pairs"), segments=0, norm=None, scale=True)
    assert count_parameters(own) == count_parameters(shared) + VOCAB * WIDTH
    model = build(own)
    assert "decoder.embed.words.table.weight" in dict(model.named_parameters())
    model(pair([4], [3])).losses["next_token"].backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    names = [name for name, _ in build(shared).named_parameters() if "words" in name]
    assert names == ["encoder.embed.words.table.weight"]


def test_it_can_be_shared_costed_and_written_down():
    r = small()
    assert r.decoder is not None
    assert from_dict(to_dict(r)) == r
    cost = measure_cost(r)
    assert cost.of_blocks("cross", "decoder")[1] > 0
    assert cost.parameters == count_parameters(r)
    r.decoder.stack.share = Share(1, 1)
    assert count_parameters(r) < cost.parameters
    build(r)(pair([4], [3])).losses["next_token"].backward()


REFUSED = {
    "decoder.stack.block.cross = None": "each of its blocks reads the source",
    "encoder.stack.block.cross = Attention(heads=4)": "nothing but its own rows",
    "decoder.stack.block.cross = RecurrentAcross(score=None)": "in the place of a mixer",
    "decoder.stack.memory = 8": "begins anew with every source",
    "decoder.stack.block.mixer.heads = 5": "width 32 is not divisible",
    "decoder.stack.block.cross.heads = 5": "width 32 is not divisible",
    "encoder.pooler = Pooler": "nothing is pooled",
    "decoder.embed = Embed(positions=LearnedPositions(length=16), segments=0)": "examples are up to 128 tokens long",
    "objective.losses = [NextToken(smoothing=1)]": "a number in [0, 1)",
    "objective.losses = [AdaptiveNextToken]": "there is one table",
}


@pytest.mark.parametrize("line", REFUSED)
def test_refused_before_anything_is_built(line: str):
    r = small()
    path, value = line.split(" = ")
    set_path(r, path, value)
    with pytest.raises(RecipeError) as refused:
        check(r, r.name)
    assert REFUSED[line] in str(refused.value)


def test_what_a_decoder_cannot_write_is_refused():
    for corruption in (MaskTokens(), Permute()):
        r = small()
        r.objective.corruption = corruption
        with pytest.raises(RecipeError):
            check(r, r.name)
    r = small()
    assert r.decoder is not None
    r.decoder.stack.block_at(0).cross = LightConv(4, 3)
    with pytest.raises(RecipeError, match="cannot attend to other rows"):
        check(r, r.name)


def test_a_batch_without_a_source_is_reported():
    model, batch = build(small()), pair([4], [3])
    with pytest.raises(ValueError, match="has none"):
        model(batch.replace(source=None))


@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_both_sides_drop(side: str):
    r = small(encoder__embed__dropout="0", encoder__stack__block__dropout="0", decoder__stack__block__dropout="0")
    set_path(r, f"{side}.stack.block.dropout", "0.5")
    model, batch = build(r), pair([5, 9], [7, 3])
    plain, dropped, again, other = (
        float(model(batch, key).losses["next_token"].detach())
        for key in (None, *(DropoutKey.make(1, step, rows=range(2)) for step in (1, 1, 2)))
    )
    assert dropped == again
    assert len({plain, dropped, other}) == 3


def test_words_narrower_than_what_an_encoder_gives_are_refused():
    r = recipe("transformer_mini")
    r.encoder.stack = Bidirectional(2, r.encoder.stack.block_at(0))
    wide = r.encoder.width
    with pytest.raises(
        RecipeError, match=rf"decoder\.embed = None: the encoder's words are {wide} wide, .* {2 * wide}"
    ):
        check(r, r.name)
    assert r.decoder is not None
    r.decoder.embed = copy.deepcopy(r.encoder.embed)
    check(r, r.name)
