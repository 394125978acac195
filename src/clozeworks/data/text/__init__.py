"""From bytes to documents: formats, encodings, sentences."""
