"""A warning on standard error about texts that a model cannot read."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clozeworks.inference.text_encoder import TextEncoder


def warn_unknown(encoder: TextEncoder, texts: Sequence[str]) -> None:
    """Say once, beside the output, that many tokens of the first texts are unknown."""
    from clozeworks.exchange.unknown_tokens import describe_unknown
    from clozeworks.screen.console import note, screen

    sentence = None if encoder.tokenizer is None else describe_unknown(encoder.model, encoder.tokenizer, texts)
    if sentence is not None:
        note(screen(stderr=True), sentence)
