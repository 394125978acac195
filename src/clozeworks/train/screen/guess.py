"""A look at what the model makes of the last example it was trained on. It reads; nothing of the training changes."""

from collections.abc import Iterator

import torch

from clozeworks.core.batch import Batch, Prediction
from clozeworks.core.token_info import DocumentLayout
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.model import Model
from clozeworks.train.screen.panel import Guess

AROUND = 40  # tokens of context on each side, more than a line holds


class SampleGuess:
    """Batches go through it to the loop; `look` takes one hidden token of the last of them.

    No key is given to the model, so no dropout is drawn, and no generator is asked for anything. A model with memory
    guesses from the row alone.
    """

    def __init__(self, model: Model, tokenizer: Tokenizer, batches: Iterator[list[Batch]]):
        self.model, self.tokenizer, self.batches = model, tokenizer, batches
        self.last: Batch | None = None

    def __iter__(self) -> Iterator[list[Batch]]:
        return self

    def __next__(self) -> list[Batch]:
        micro = next(self.batches)
        self.last = micro[0]
        return micro

    @torch.no_grad()
    def look(self) -> Guess | None:
        """None where no loss of the model predicts tokens, or the batch hides none."""
        heads = [self.model.head(spec.name) for spec in self.model.specs if "labels" in spec.reads]
        head = next((head for head in heads if hasattr(head, "logits")), None)
        one = None if self.last is None else first_example(self.last)
        if head is None or one is None or one.targets is None or one.labels is None:
            return None
        chosen = len(one.targets) // 2  # the beginning of an example has little before it
        at, label = int(one.targets[chosen]), int(one.labels[chosen])
        here = one.to(next(self.model.parameters()).device)
        hidden = self.model.read(here, ())
        guess = int(head.logits(hidden.at(here)[chosen]).argmax())  # pyright: ignore[reportCallIssue]
        tokens = one.tokens[0].tolist()
        at += one.kind == "causal"  # where a token is read, the one after it is guessed
        before, after = tokens[max(at - AROUND, 0) : at], tokens[at + 1 : at + 1 + AROUND]
        return Guess(self._text(before), self._text([guess]), self._text([label]), self._text(after))

    def _text(self, tokens: list[int]) -> str:
        """Tokens as people read them: of the special ones only the mask is shown."""
        kept = [token for token in tokens if token == self.tokenizer.mask or token not in self.tokenizer.special_ids]
        return " ".join(self.tokenizer.decode(kept, skip_specials=False).split()).removeprefix("##")


def first_example(batch: Batch) -> Batch | None:
    """The first example that something is predicted of, in a batch of its own."""
    if batch.targets is None or batch.labels is None or not len(batch.targets):
        return None
    first = int(batch.targets[0])
    places = zip(batch.layout.starts, batch.layout.lengths, strict=True)
    start, length = next((s, n) for s, n in places if s <= first < s + n)
    row, column = divmod(start, batch.layout.width)
    cut = lambda value: value[row : row + 1, column : column + length]  # noqa: E731
    mine = (batch.targets >= start) & (batch.targets < start + length)
    return Batch(
        cut(batch.tokens),
        batch.token_info.each(cut),
        batch.kind,
        DocumentLayout((0,), (length,), 1, length),
        firsts=torch.zeros(1, dtype=torch.long),
        real=length,
        prediction=Prediction(batch.targets[mine] - start, batch.labels[mine]),
        source=None
        if batch.source is None
        else same_pair(batch.source, row, int(batch.token_info.document[row, column])),
    )


def same_pair(source: Batch, row: int, document: int) -> Batch:
    """Of a source, the document of this number."""
    columns = (source.token_info.document[row] == document).nonzero()[:, 0]
    cut = lambda value: value[row : row + 1, columns]  # noqa: E731
    length = len(columns)
    borders, firsts = DocumentLayout((0,), (length,), 1, length), torch.zeros(1, dtype=torch.long)
    return Batch(cut(source.tokens), source.token_info.each(cut), source.kind, borders, firsts, real=length)
