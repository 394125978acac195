"""GPT's directories, both ways, on random weights; and generation beside `transformers`' own."""

import pytest
import torch

import clozeworks as cw
from clozeworks.core.errors import InputError, RecipeError
from clozeworks.inference.beam_search import BeamSearch, beam_search
from clozeworks.inference.generation import IncrementalReader, Sampling, sample
from clozeworks.inference.text_encoder import TextEncoder, load, save
from clozeworks.nn.stack import Share

transformers = pytest.importorskip("transformers")
TOLERANCE = 1e-5
SHAPE = {"vocab_size": 61, "n_positions": 48, "n_embd": 32, "n_layer": 3, "n_head": 4}
ENDS = (18, 21)  # tokens that the lively model often says


def their_model(name: str = "OpenAIGPTLMHeadModel", deviation: float = 0.15, **config):
    torch.manual_seed(0)
    model = getattr(transformers, name)(transformers.OpenAIGPTConfig(**{**SHAPE, **config})).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, deviation)
    model.tie_weights()
    return model


@pytest.fixture
def pair(tmp_path):
    theirs = their_model()
    theirs.save_pretrained(tmp_path / "theirs")
    return theirs, load(tmp_path / "theirs")


@pytest.fixture
def lively(tmp_path):
    """One that does not say the same word for ever: with the norms as they are made."""
    theirs = their_model(deviation=0.8)
    with torch.no_grad():
        for name, parameter in theirs.named_parameters():
            if ".ln_" in name:
                parameter.fill_(1.0 if name.endswith("weight") else 0.0)
    theirs.save_pretrained(tmp_path / "lively")
    return theirs, load(tmp_path / "lively")


@pytest.mark.parametrize("name", ["OpenAIGPTLMHeadModel", "OpenAIGPTModel", "OpenAIGPTDoubleHeadsModel"])
def test_their_directories_load(name, tmp_path):
    theirs = their_model(name)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = load(tmp_path / "theirs")
    ids = torch.randint(0, 61, (3, 20), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    mask[1, 13:] = 0
    with torch.no_grad():
        expected = theirs(input_ids=ids, attention_mask=mask, output_hidden_states=True)
    out = ours.forward(ids, mask)
    real = mask.bool()
    for actual, wanted in zip(out.hidden_states, expected.hidden_states, strict=True):
        torch.testing.assert_close(actual[real], wanted[real], rtol=0, atol=TOLERANCE)
    if name == "OpenAIGPTModel":
        assert out.logits is None
    else:
        assert out.logits is not None
        torch.testing.assert_close(out.logits[real], expected.logits[real], rtol=0, atol=TOLERANCE)


def test_their_loss_is_ours(pair, tmp_path):
    theirs, ours = pair
    ids = torch.randint(0, 61, (1, 20), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = theirs(input_ids=ids, labels=ids).loss
        logits = ours.forward(ids).logits
    actual = torch.nn.functional.cross_entropy(logits[0, :-1], ids[0, 1:])
    torch.testing.assert_close(actual, expected, rtol=0, atol=TOLERANCE)


def test_the_head_for_choices_comes_and_goes(tmp_path):
    theirs = their_model("OpenAIGPTDoubleHeadsModel")
    theirs.save_pretrained(tmp_path / "theirs")
    ours = load(tmp_path / "theirs")
    assert ours.unused == []
    assert [loss.name for loss in ours.recipe.objective.losses] == ["next_token", "choice"]
    ids = torch.randint(0, 61, (4, 20), generator=torch.Generator().manual_seed(1))
    for at in (torch.tensor([19, 3, 7, 0]), None):
        with torch.no_grad():  # two questions of two options
            there = None if at is None else at.view(2, 2)
            expected = theirs(input_ids=ids.view(2, 2, 20), mc_token_ids=there)
        actual = ours.forward(ids, mc_token_ids=at)
        assert actual.mc_logits is not None
        assert actual.logits is not None
        torch.testing.assert_close(actual.mc_logits.view(2, 2), expected.mc_logits, rtol=0, atol=TOLERANCE)
        torch.testing.assert_close(actual.logits.view(2, 2, 20, 61), expected.logits, rtol=0, atol=TOLERANCE)
    save(ours, tmp_path / "again", format="hf")
    again, loading = transformers.OpenAIGPTDoubleHeadsModel.from_pretrained(
        tmp_path / "again", output_loading_info=True
    )
    assert not loading["missing_keys"]
    assert not loading["unexpected_keys"]
    for key, value in theirs.state_dict().items():
        assert torch.equal(again.state_dict()[key], value), key
    save(ours, tmp_path / "own")
    for key, value in load(tmp_path / "own").model.state_dict().items():
        assert torch.equal(ours.model.state_dict()[key], value), key


def test_a_head_for_choices_of_another_kind_is_refused(tmp_path):
    their_model("OpenAIGPTDoubleHeadsModel", summary_type="mean").save_pretrained(tmp_path / "theirs")
    with pytest.raises(InputError, match="summary_type mean; summary_type cls_index is supported"):
        load(tmp_path / "theirs")


@pytest.mark.parametrize("losses", [True, False])
def test_ours_load_there_and_come_back(losses, tmp_path):
    r = cw.recipe("gpt_mini")
    r.encoder.vocab, r.encoder.width, r.encoder.stack.depth = 61, 32, 2
    block = r.encoder.stack.block_at(0)
    block.ffn.inner = 128  # pyright: ignore[reportOptionalMemberAccess]
    if not losses:
        r.objective.losses = ()
    torch.manual_seed(3)
    model = cw.build(r).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.15)
    ours = TextEncoder(model, None, r)
    save(ours, tmp_path / "hf", format="hf")
    name = "OpenAIGPTLMHeadModel" if losses else "OpenAIGPTModel"
    theirs, loading = getattr(transformers, name).from_pretrained(tmp_path / "hf", output_loading_info=True)
    assert not loading["missing_keys"]
    assert not loading["unexpected_keys"]
    ids = torch.randint(0, 61, (2, 30), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = theirs.eval()(input_ids=ids, output_hidden_states=True).hidden_states[-1]
    torch.testing.assert_close(ours.forward(ids).last_hidden_state, expected, rtol=0, atol=TOLERANCE)
    again = load(tmp_path / "hf")
    for key, value in model.state_dict().items():
        assert torch.equal(again.model.state_dict()[key], value), key


def test_what_the_class_has_no_part_for_is_refused(tmp_path):
    r = cw.recipe("gpt_mini")
    r.encoder.vocab, r.encoder.stack.share = 61, Share(1, 1)
    with pytest.raises(RecipeError, match=r"stack\.share"):
        save(TextEncoder(cw.build(r), None, r), tmp_path / "hf", format="hf")
    assert not (tmp_path / "hf").exists()


@pytest.mark.parametrize("beams", [1, 2, 3, 5])
@pytest.mark.parametrize("penalty", [0.0, 0.6, 2.0])
@pytest.mark.parametrize("end", ENDS)
def test_beams_find_what_theirs_find(lively, beams, penalty, end):
    for seed in range(2):
        prompt = torch.randint(0, 61, (1, 5), generator=torch.Generator().manual_seed(seed))
        same_texts(*lively, prompt, beams, penalty, end)


def same_texts(theirs, ours, prompt, beams, penalty, end):
    with torch.no_grad():
        expected = theirs.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=15,
            do_sample=False,
            num_beams=beams,
            num_return_sequences=beams,
            length_penalty=penalty,
            eos_token_id=end,
            pad_token_id=1,  # 0 would be taken for none
        )
    if beams == 1:
        actual = sample(IncrementalReader(ours.model), prompt[0].tolist(), 15, Sampling(0), end=end)
    else:
        actual = beam_search(IncrementalReader(ours.model), prompt[0].tolist(), 15, BeamSearch(beams, penalty), end=end)
    for one, wanted in zip(actual, expected[:, 5:].tolist(), strict=True):
        assert one.tokens == wanted[: len(one.tokens)]
        assert all(token == 1 for token in wanted[len(one.tokens) :])


@pytest.mark.parametrize("end", ENDS)
def test_beams_that_end_are_among_those_compared(lively, end):
    """Else the test above would show nothing about the end."""
    _, ours = lively
    prompts = torch.randint(0, 61, (40, 5), generator=torch.Generator().manual_seed(0)).tolist()
    ends = [
        one.tokens[-1] == end
        for prompt in prompts
        for one in beam_search(IncrementalReader(ours.model), prompt, 15, BeamSearch(3), end=end)
    ]
    assert any(ends)
    assert not all(ends)


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"), [(1.0, None, None), (0.7, 10, None), (1.3, None, 0.8), (0.9, 20, 0.5)]
)
def test_chances_are_theirs(pair, temperature, top_k, top_p):
    logits = torch.randn(6, 61, generator=torch.Generator().manual_seed(0)) * 3
    steps = [transformers.TemperatureLogitsWarper(temperature)]
    if top_k is not None:
        steps.append(transformers.TopKLogitsWarper(top_k))
    if top_p is not None:
        steps.append(transformers.TopPLogitsWarper(top_p))
    expected = transformers.LogitsProcessorList(steps)(torch.zeros(6, 1, dtype=torch.long), logits.clone())
    torch.testing.assert_close(Sampling(temperature, top_k, top_p).chances(logits), expected.softmax(-1))


def test_a_cache_changes_nothing(pair):
    _, ours = pair
    prompt = list(range(5))
    cached, plain = IncrementalReader(ours.model), IncrementalReader(ours.model, cache=False)
    pieces = [prompt, [9], [4, 11, 30], [2] * 7]
    for piece in pieces:
        rows = torch.tensor([piece, piece[::-1]])
        torch.testing.assert_close(cached.read(rows), plain.read(rows), rtol=0, atol=1e-6)
    for reader in (cached, plain):
        reader.keep(torch.tensor([1, 1, 0]))
    rows = torch.tensor([[3], [5], [7]])
    torch.testing.assert_close(cached.read(rows), plain.read(rows), rtol=0, atol=1e-6)
