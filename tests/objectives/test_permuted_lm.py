import pytest
import torch

from clozeworks.core.batch import Hidden
from clozeworks.core.errors import RecipeError
from clozeworks.core.spec import check
from clozeworks.nn.embed import Embed
from clozeworks.nn.stack import Stack
from clozeworks.objectives.losses.permuted_lm import PermutedLM
from clozeworks.objectives.mask import MaskTokens
from clozeworks.objectives.segments import DocSentences
from clozeworks.recipes import recipe
from tests.toys import batch_of, packed


def test_it_reads_the_stream_that_asks_and_nothing_of_the_other():
    torch.manual_seed(0)
    embed = Embed(None, segments=0, norm=None).build(8, 11)
    loss = PermutedLM()
    head = loss.build(8, embed)
    torch.nn.init.normal_(head.bias)  # pyright: ignore[reportArgumentType]
    batch = batch_of(packed([[4], [4]], 4), torch.randint(0, 11, (2, 4)))
    batch.targets, batch.labels = torch.tensor([1, 6, 7]), torch.tensor([3, 0, 9])
    asked = torch.randn(3, 8)
    total, metrics = head(Hidden(torch.full((2, 4, 8), torch.nan), query_stream=asked), batch)
    logits = asked @ embed.words.table.weight.t() + head.bias
    torch.testing.assert_close(total, torch.nn.functional.cross_entropy(logits, batch.labels, reduction="sum"))
    assert int(metrics["permuted_accuracy"]) == int((logits.argmax(-1) == batch.labels).sum())
    torch.testing.assert_close(head.logits(asked), logits)
    assert loss.count(batch) == 3
    assert loss.read_positions(batch).tolist() == []  # pyright: ignore[reportOptionalMemberAccess]


def test_without_an_order_it_is_refused():
    r = recipe("xlnet_mini")
    r.encoder.stack = Stack(2, r.encoder.stack.block_at(0))
    r.objective.segments, r.objective.corruption, r.objective.losses = DocSentences(), MaskTokens(), (PermutedLM(),)
    with pytest.raises(RecipeError, match=r"PermutedLM: it reads order, which nothing writes; .*corruption=Permute"):
        check(r, r.name)
