"""A look at what the model makes of the last example it was trained on. It reads; nothing of the training changes."""

import functools

import torch
from torch import Tensor

from clozeworks.core.batch import Batch, Prediction
from clozeworks.core.token_info import DocumentLayout
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.model import Model
from clozeworks.train.screen.panel import Guess

AROUND = 40  # tokens of context on each side, more than a line holds


@torch.no_grad()
def guess_token(model: Model, tokenizer: Tokenizer, batch: Batch) -> Guess | None:
    """The model's guess for one masked token of a batch; None where no loss predicts tokens, or the batch masks none.

    No key is given to the model, so no dropout is drawn, and no generator is asked for anything. A model with memory
    guesses from the row alone.
    """
    heads = [model.head(spec.name) for spec in model.specs if "labels" in spec.needs.reads]
    head = next((head for head in heads if hasattr(head, "logits")), None)
    one = first_example(batch)
    if head is None or one is None or one.targets is None or one.labels is None:
        return None
    chosen = len(one.targets) // 2  # the beginning of an example has little before it
    at, label = int(one.targets[chosen]), int(one.labels[chosen])
    here = one.to(next(model.parameters()).device)
    hidden = model.read(here, ())
    guess = int(head.logits(hidden.at(here)[chosen]).argmax())  # pyright: ignore[reportCallIssue]
    tokens = one.tokens[0].tolist()
    at += one.kind == "causal"  # where a token is read, the one after it is guessed
    before, after = tokens[max(at - AROUND, 0) : at], tokens[at + 1 : at + 1 + AROUND]
    text = functools.partial(show_tokens, tokenizer)
    return Guess(text(before), text([guess]), text([label]), text(after))


def show_tokens(tokenizer: Tokenizer, tokens: list[int]) -> str:
    """Tokens as people read them: of the special ones only the mask is shown."""
    kept = [token for token in tokens if token == tokenizer.mask or token not in tokenizer.special_ids]
    return " ".join(tokenizer.decode(kept, skip_specials=False).split()).removeprefix("##")


def first_example(batch: Batch) -> Batch | None:
    """The first example that something is predicted of, in a batch of its own."""
    if batch.targets is None or batch.labels is None or not len(batch.targets):
        return None
    first = int(batch.targets[0])
    places = zip(batch.layout.starts, batch.layout.lengths, strict=True)
    start, length = next((s, n) for s, n in places if s <= first < s + n)
    row, column = divmod(start, batch.layout.width)
    mine = (batch.targets >= start) & (batch.targets < start + length)
    one = cut_document(batch, row, torch.arange(column, column + length, device=batch.tokens.device))
    source = batch.source
    if source is not None:  # of the other side, the document of the same number
        number = batch.token_info.document[row, column]
        source = cut_document(source, row, (source.token_info.document[row] == number).nonzero()[:, 0])
    return one.replace(prediction=Prediction(batch.targets[mine] - start, batch.labels[mine]), source=source)


def cut_document(batch: Batch, row: int, columns: Tensor) -> Batch:
    """A batch of one document, which stands in these columns of a row; without what is predicted of it."""
    cut = lambda value: value[row : row + 1, columns]  # noqa: E731
    length = len(columns)
    layout, firsts = DocumentLayout((0,), (length,), 1, length), torch.zeros(1, dtype=torch.long)
    return Batch(cut(batch.tokens), batch.token_info.each(cut), batch.kind, layout, firsts=firsts, real=length)
