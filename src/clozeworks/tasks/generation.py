"""How a task generates its answers: what a decoder is made for, and what beam search needs to know."""

from dataclasses import dataclass
from typing import Literal

from clozeworks.core.bounds import Count, Finite, Natural
from clozeworks.core.spec import Spec
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.tasks.template import InputTemplate

Form = Literal["decoder", "prefix", "causal"]


@dataclass(slots=True)
class Search(Spec):
    """Beam search: what is written is the best of `beams` beams by log p / ((5 + length) / 6)^penalty (Vaswani et al.
    2017, 6.1), at most `more` tokens longer than its source; with one beam, the most likely next token each time."""

    beams: Count = 4
    penalty: Finite = 0.6
    more: Natural = 50


@dataclass(frozen=True, slots=True)
class Generation:
    """How texts are generated from sources, token by token."""

    architecture: Form
    template: InputTemplate  # of the source
    target_length: int  # tokens of a target at most, its end among them
    search: Search
    share: bool  # a decoder reads by the embedding of the encoder

    def start(self, tokenizer: Tokenizer) -> int:
        """What the first token of a target is predicted from: one stack has read it, as the last one of the source."""
        names = self.template.between[-1:] if self.architecture != "decoder" else self.template.opening[:1]
        return self.template.ids(tokenizer, names)[0] if names else tokenizer.need("cls")

    def end(self, tokenizer: Tokenizer) -> int:
        return self.template.ids(tokenizer, self.template.closing[:1])[0]
