"""XLNet directories, both ways, on random weights: one stream and two, with all that may be given beside the words."""

import pytest
import torch
from torch import Tensor

import clozeworks as cw
from clozeworks.core.batch import Batch, from_padded
from clozeworks.core.context import Context, Memory
from clozeworks.core.errors import InputError, RecipeError
from clozeworks.core.token_info import PADDING, TokenInfo
from clozeworks.inference.text_encoder import TextEncoder, load, save
from clozeworks.nn.stack import Share

transformers = pytest.importorskip("transformers")
TOLERANCE = 1e-5
SHAPE = {"vocab_size": 61, "d_model": 32, "n_layer": 3, "n_head": 4, "d_inner": 64}
ROWS, LENGTH, MEMORY = 3, 12, 5
TARGETS = torch.tensor([2, 5, 9, 12 + 4, 12 + 6, 24 + 3, 24 + 4, 24 + 8, 24 + 7])  # three, two and four a row


def their_model(name: str = "XLNetLMHeadModel", **config):
    torch.manual_seed(0)
    model = getattr(transformers, name)(transformers.XLNetConfig(**{**SHAPE, **config})).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.15)
    model.tie_weights()
    return model


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    theirs, folder = their_model(), tmp_path_factory.mktemp("xlnet")
    theirs.save_pretrained(folder)
    return theirs, load(folder)


@pytest.fixture
def ids() -> Tensor:
    return torch.randint(0, 61, (ROWS, LENGTH), generator=torch.Generator().manual_seed(1))


SEGMENTS = torch.tensor([[0] * 4 + [1] * 7 + [2], [0] * 6 + [1] * 5 + [2], [0] * 3 + [1] * 8 + [2]])


def masks(padding: str) -> Tensor | None:
    if padding == "none":
        return None
    real = torch.ones(ROWS, LENGTH, dtype=torch.long)
    for row, count in ((0, 2), (2, 3)):
        real[row, slice(0, count) if padding == "left" else slice(LENGTH - count, None)] = 0
    return real


@pytest.mark.parametrize("name", ["XLNetLMHeadModel", "XLNetModel", "XLNetForTokenClassification"])
def test_their_directories_load(name, tmp_path, ids):
    theirs = their_model(name)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = load(tmp_path / "theirs")
    assert ours.unused == []
    with torch.no_grad():
        expected = theirs(input_ids=ids, output_hidden_states=True)
    out = ours.forward(ids)
    for actual, wanted in zip(out.hidden_states, expected.hidden_states, strict=True):
        torch.testing.assert_close(actual, wanted, rtol=0, atol=TOLERANCE)
    if name != "XLNetModel":
        torch.testing.assert_close(out.logits, expected.logits, rtol=0, atol=TOLERANCE)
    else:
        assert out.logits is None


@pytest.mark.parametrize("padding", ["none", "right", "left"])
@pytest.mark.parametrize("segments", [False, True])
def test_one_stream_is_theirs(pair, ids, padding, segments):
    theirs, ours = pair
    mask, types = masks(padding), SEGMENTS if segments else None
    with torch.no_grad():
        expected = theirs(input_ids=ids, attention_mask=mask, token_type_ids=types, output_hidden_states=True)
    out = ours.forward(ids, mask, types)
    real = torch.ones_like(ids).bool() if mask is None else mask.bool()
    for actual, wanted in zip(out.hidden_states, expected.hidden_states, strict=True):
        torch.testing.assert_close(actual[real], wanted[real], rtol=0, atol=TOLERANCE)
    torch.testing.assert_close(out.logits[real], expected.logits[real], rtol=0, atol=TOLERANCE)


def remembered(seed: int = 2) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(ROWS, MEMORY, 32, generator=generator) for _ in range(3))


@pytest.mark.parametrize("padding", ["none", "right", "left"])
@pytest.mark.parametrize("segments", [False, True])
@pytest.mark.parametrize("memory", [False, True])
@pytest.mark.parametrize("permuted", [False, True])
def test_two_streams_are_theirs(pair, ids, padding, segments, memory, permuted):
    theirs, ours = pair
    mask, types, past = masks(padding), SEGMENTS if segments else None, remembered() if memory else None
    order = torch.zeros(ROWS * LENGTH, dtype=torch.long)
    if permuted:
        order[TARGETS] = 1 + torch.randperm(len(TARGETS), generator=torch.Generator().manual_seed(3))
    else:
        order[TARGETS] = 1  # all of them at once, from the others alone
    order = order.view(ROWS, LENGTH)
    target = torch.zeros(ROWS * LENGTH).index_fill_(0, TARGETS, 1.0).view(ROWS, LENGTH)
    hidden = order[:, None, :] > order[:, :, None]
    hidden |= target.bool()[:, :, None] & (order[:, None, :] == order[:, :, None])  # itself above all
    mapping = torch.zeros(ROWS, 4, LENGTH)
    places = [(row, column) for row in range(ROWS) for column in range(4) if column < int(target[row].sum())]
    for (row, column), flat in zip(places, TARGETS.sort().values.tolist(), strict=True):
        mapping[row, column, flat % LENGTH] = 1.0
    with torch.no_grad():
        expected = theirs(
            input_ids=ids,
            attention_mask=mask,
            token_type_ids=types,
            mems=None if past is None else [layer.transpose(0, 1) for layer in past],
            perm_mask=hidden.float(),
            target_mapping=mapping,
            output_hidden_states=True,
        )
    document = torch.zeros_like(ids) if mask is None else torch.where(mask.bool(), 0, PADDING)
    side = TokenInfo(torch.arange(LENGTH).expand_as(ids), document, order, order, types)
    older = TokenInfo(side.position, torch.zeros_like(ids), order, order, types).tail(MEMORY)
    past_here = None if past is None else Memory(past, older.earlier(LENGTH))
    context = Context.make(side, side, "order", past=past_here, targets=TARGETS)
    with torch.no_grad():
        actual = ours.model.encoder(ids, side, context, layers=True)
        logits = ours.language_head.logits(actual.query_stream)
    compared = document == 0
    if not permuted:  # of equal order: here they see each other, under their mask they cannot
        compared &= order == 0
    for mine, wanted in zip(actual.layers, expected.hidden_states[::2], strict=True):
        torch.testing.assert_close(mine[compared], wanted[compared], rtol=0, atol=TOLERANCE)
    by_place = TARGETS.argsort()
    rows, columns = map(torch.tensor, zip(*places, strict=True))
    wanted = expected.hidden_states[-1][rows, columns]
    torch.testing.assert_close(actual.query_stream[by_place], wanted, rtol=0, atol=TOLERANCE)
    torch.testing.assert_close(logits[by_place], expected.logits[rows, columns], rtol=0, atol=TOLERANCE)


def test_their_loss_is_ours(pair, ids):
    theirs, ours = pair
    order = torch.zeros(ROWS * LENGTH, dtype=torch.long)
    order[TARGETS] = 1 + torch.arange(len(TARGETS)).flip(0)
    order = order.view(ROWS, LENGTH)
    batch: Batch = from_padded(ids)
    batch.token_info = TokenInfo(batch.token_info.position, batch.token_info.document, order, order)
    batch.kind, batch.targets, batch.labels = "order", TARGETS, ids.flatten()[TARGETS]
    with torch.no_grad():
        output = ours.model(batch)
    mapping = torch.zeros(ROWS, LENGTH, LENGTH)
    mapping[:, range(LENGTH), range(LENGTH)] = 1.0
    labels = torch.full((ROWS * LENGTH,), -100)
    labels[TARGETS] = batch.labels
    own = torch.eye(LENGTH).bool() & (order > 0)[:, :, None]
    hidden = ((order[:, None, :] > order[:, :, None]) | own).float()
    with torch.no_grad():
        expected = theirs(ids, perm_mask=hidden, target_mapping=mapping, labels=labels.view(ROWS, LENGTH)).loss
    actual = output.losses["permuted_lm"] / ours.model.count(batch)["permuted_lm"]
    torch.testing.assert_close(actual, expected, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("losses", [True, False])
def test_ours_load_there_and_come_back(losses, tmp_path, ids):
    ours = small(losses)
    save(ours, tmp_path / "hf", format="hf")
    name = "XLNetLMHeadModel" if losses else "XLNetModel"
    theirs, loading = getattr(transformers, name).from_pretrained(tmp_path / "hf", output_loading_info=True)
    assert not loading["missing_keys"]
    assert not loading["unexpected_keys"]
    assert not loading["mismatched_keys"]
    with torch.no_grad():
        expected = theirs.eval()(input_ids=ids, token_type_ids=SEGMENTS, output_hidden_states=True).hidden_states[-1]
    actual = ours.forward(ids, token_type_ids=SEGMENTS).last_hidden_state
    torch.testing.assert_close(actual, expected, rtol=0, atol=TOLERANCE)
    again = load(tmp_path / "hf")
    for key, value in ours.model.state_dict().items():
        assert torch.equal(again.model.state_dict()[key], value), key
    assert again.recipe.encoder == ours.recipe.encoder


def small(losses: bool = True) -> TextEncoder:
    r = cw.recipe("xlnet_mini")
    r.encoder.vocab, r.encoder.width, r.encoder.stack.depth = 61, 32, 2
    if not losses:
        r.objective.losses = ()
    torch.manual_seed(3)
    model = cw.build(r).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.15)
    return TextEncoder(model, None, r)


def test_what_the_class_has_no_part_for_is_refused(tmp_path):
    r = cw.recipe("xlnet_mini")
    r.encoder.vocab, r.encoder.stack.share = 61, Share(1, 1)
    with pytest.raises(RecipeError, match=r"stack\.share"):
        save(TextEncoder(cw.build(r), None, r), tmp_path / "hf", format="hf")
    r.encoder.stack.share, r.encoder.embed.dropout = Share(), 0.3
    with pytest.raises(RecipeError, match="one rate for all"):
        save(TextEncoder(cw.build(r), None, r), tmp_path / "hf", format="hf")
    assert not (tmp_path / "hf").exists()


def test_their_causal_kind_is_refused(tmp_path):
    their_model("XLNetModel", attn_type="uni").save_pretrained(tmp_path / "theirs")
    with pytest.raises(InputError, match="attn_type uni"):
        load(tmp_path / "theirs")


def test_distances_are_bounded_as_theirs(tmp_path, ids):
    theirs = their_model("XLNetModel", clamp_len=3)
    theirs.save_pretrained(tmp_path / "theirs")
    with torch.no_grad():
        expected = theirs(input_ids=ids).last_hidden_state
    actual = load(tmp_path / "theirs").forward(ids).last_hidden_state
    torch.testing.assert_close(actual, expected, rtol=0, atol=TOLERANCE)
