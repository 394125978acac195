"""A teacher that reads the text of a batch, not its tokens: it may have any tokenizer."""

import torch
from torch import Tensor

from clozeworks.core.batch import Batch
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.exchange.bundle import Bundle
from clozeworks.inference.text_encoder import TextEncoder

TOGETHER = 512  # tokens that a teacher reads together: texts of like length, so that little is padding


class TextReader:
    """The sentence vectors [N, D] that a model has for the examples of a batch, by its own tokenizer and pooling.

    The text is that of the tokens as they were before any was masked. Specials, an unknown token among them, are none
    of it; a text that is longer than the model's positions is cut, as `encode` does.
    """

    def __init__(self, model: Bundle, tokenizer: Tokenizer, restores: bool):
        self.encoder = TextEncoder(model.model, model.tokenizer, model.recipe)
        self.tokenizer = tokenizer  # of the batches
        self.restores = restores  # the labels of a batch are what stood where its targets are

    @torch.no_grad()
    def __call__(self, batch: Batch) -> Tensor:
        vectors = self.encoder.encode(self.texts(batch), batch_tokens=TOGETHER)
        return torch.from_numpy(vectors).to(batch.tokens.device)

    def texts(self, batch: Batch) -> list[str]:
        """Of each example, in the order of `batch.firsts`."""
        tokens = batch.tokens.flatten()
        if self.restores and batch.targets is not None and batch.labels is not None:
            tokens = tokens.index_copy(0, batch.targets, batch.labels)
        ids, firsts = tokens.tolist(), batch.firsts.tolist()
        assert batch.lasts is not None
        return [
            self.tokenizer.write(ids[first : last + 1])
            for first, last in zip(firsts, batch.lasts.tolist(), strict=True)
        ]
