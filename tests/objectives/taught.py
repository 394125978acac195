"""A small student, its teacher, and documents that both read, packed or one in a row; all in double precision."""

from collections.abc import Sequence

import torch
from torch import Tensor

from clozeworks.core.batch import Batch
from clozeworks.model import Encoder, Model, initialise
from clozeworks.nn.block import Block
from clozeworks.nn.embed import Embed
from clozeworks.nn.ffn import FeedForward
from clozeworks.nn.mixers.attention import Attention
from clozeworks.nn.positions import LearnedPositions
from clozeworks.nn.stack import Stack
from clozeworks.objectives.losses.masked_lm import MaskedLM
from clozeworks.objectives.objective import Loss
from clozeworks.train.teacher import Teacher
from tests.toys import batch_of, packed

VOCAB = 23
PACKED, SINGLE = ([[5, 3, 2], [7, 2]], 11), ([[5], [3], [2], [7], [2]], 7)  # the same documents


def model_of(losses: Sequence[Loss], width: int = 8, heads: int = 2, depth: int = 2, vocab: int = VOCAB, seed: int = 0):
    block = Block(Attention(heads, dropout=0.1), FeedForward(2 * width))
    model = Model(Encoder(width, vocab, Embed(LearnedPositions(12), segments=0), Stack(depth, block)), tuple(losses))
    initialise(model, 0.4, seed)
    return model.double()


def batch_in(layout: tuple[list[list[int]], int]) -> Batch:
    """Tokens that depend on the document and the place in it alone; every third is predicted."""
    lengths, width = layout
    context = packed(lengths, width)
    tokens = torch.zeros(len(lengths), width, dtype=torch.long)
    targets, labels, number = [], [], 0
    for row, documents in enumerate(lengths):
        at = 0
        for length in documents:
            for place in range(length):
                tokens[row, at + place] = (7 * number + 3 * place + number * place) % VOCAB
                if (number + place) % 3 == 0:
                    targets.append(row * width + at + place)
                    labels.append((number + 5 * place) % VOCAB)
            at, number = at + length, number + 1
    batch = batch_of(context, tokens)
    batch.real = sum(map(sum, lengths))
    batch.targets, batch.labels = torch.tensor(targets), torch.tensor(labels)
    return batch


def pair(loss: Loss, **teacher: int) -> tuple[Model, Teacher]:
    """The student has the loss and a masked-LM head, the teacher other sizes where they are given."""
    student = model_of([loss, MaskedLM()])
    return student, Teacher(model_of([MaskedLM()], seed=1, **teacher), student.specs, 2)


def loss_of(loss: Loss, layout: tuple[list[list[int]], int] = PACKED, **teacher: int) -> Tensor:
    student, teach = pair(loss, **teacher)
    return student(teach(batch_in(layout))).losses[loss.name]


def documents(batch: Batch) -> list[Batch]:
    """Each document in a batch of its own."""
    results = []
    for start, length in zip(batch.layout.starts, batch.layout.lengths, strict=True):
        row, column = divmod(start, batch.layout.width)
        if batch.token_info.document[row, column] >= 0:
            cut = lambda x, r=row, c=column, n=length: x[r : r + 1, c : c + n]  # noqa: E731
            context = packed([[length]], length)
            results.append(batch_of(context, cut(batch.tokens)).replace(real=length))
    return results
