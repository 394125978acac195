"""Where nothing is learned, attention by distance takes the fused kernel and gives what the definition gives."""

import dataclasses

import pytest
import torch

from clozeworks.core.context import Context
from clozeworks.core.token_info import TokenInfo
from clozeworks.nn.kernels import backends
from clozeworks.nn.kernels.read_only import later
from tests.nn.bias.test_relative import WIDTH, layer, remembering
from tests.toys import packed


def both(mixer, x, memory: int, context: Context) -> tuple[torch.Tensor, torch.Tensor]:
    """By the definition, and by the path that is taken without gradients."""
    views = (context.replace(backend=backend, scratch={}) for backend in ("dense", "auto"))
    with torch.no_grad():
        dense, auto = (mixer(x[:, memory:], x, view)[0] for view in views)
    return dense, auto


@pytest.mark.parametrize("kind", ["full", "causal"])
@pytest.mark.parametrize("fields", [{}, {"clamp": 3, "segments": True}], ids=str)
@pytest.mark.parametrize(("length", "memory"), [(1, 0), (5, 0), (5, 4), (3, 7), (1, 6)])
@pytest.mark.parametrize("backward", [False, True])
def test_it_is_the_definition(length, memory, fields, kind, backward):
    mixer, context = layer(**fields), remembering(kind, length, memory)
    if not backward:
        side = TokenInfo.make(torch.arange(-memory, length).expand(2, -1), torch.zeros(2, memory + length).long(), kind)
        context = Context.make(side.tail(length), side, kind, memory)
    dense, auto = both(mixer, torch.randn(2, memory + length, WIDTH), memory, context)
    torch.testing.assert_close(auto, dense, atol=2e-6, rtol=1e-5)


def test_documents_of_a_packed_row_do_not_see_each_other():
    x = torch.randn(2, 9, WIDTH)
    dense, auto = both(layer(), x, 0, packed([[3, 4], [9]], 9, "causal"))
    torch.testing.assert_close(auto, dense, atol=2e-6, rtol=1e-5)
    forgotten = remembering("causal", 4, 5)
    memory = dataclasses.replace(forgotten.memory, document=forgotten.memory.document.clone())
    memory.document[0, :3] = -2
    context = forgotten.replace(memory=memory, backward=None)
    assert later(context)[0] == 0, "some of the memory is hidden"
    dense, auto = both(layer(), x, 5, context)
    torch.testing.assert_close(auto, dense, atol=2e-6, rtol=1e-5)


def test_of_one_document_only_its_own_rows_are_masked():
    side = TokenInfo.make(torch.arange(-5, 4)[None], torch.zeros(1, 9).long(), "causal")
    first, hidden = later(Context.make(side.tail(4), side, "causal", 5))
    assert (first, hidden.shape) == (5, (1, 1, 4, 4))


def test_it_is_taken_without_gradients_alone(monkeypatch):
    taken = []
    real = backends.read_only
    monkeypatch.setattr(backends, "read_only", lambda *given: taken.append(1) or real(*given))
    mixer, x = layer(), torch.randn(1, 6, WIDTH)
    mixer(x, None, packed([[6]], 6, "causal"))
    assert not taken
    with torch.no_grad():
        mixer(x, None, packed([[6]], 6, "causal"))
    assert taken


def test_vectors_of_distances_are_kept_while_weights_stay():
    mixer, x, kept = layer(clamp=3), torch.randn(1, 6, WIDTH), {}
    calls = []
    mixer.bias.position.register_forward_hook(lambda *_: calls.append(1))
    with torch.no_grad():
        plain = mixer(x, None, packed([[6]], 6, "causal"))[0]
        for _ in range(2):
            assert torch.equal(mixer(x, None, packed([[6]], 6, "causal", frozen=kept))[0], plain)
    assert len(calls) == 2, "once without a place to keep them, once with it"
    with torch.no_grad():
        shorter = mixer(x[:, :4], None, packed([[4]], 4, "causal", frozen=kept))[0]
        assert torch.equal(shorter, mixer(x[:, :4], None, packed([[4]], 4, "causal"))[0])
    assert len(kept) == 1, "those of one length for each layer"
