"""From text to tokens: tokenizers, and where words begin."""
