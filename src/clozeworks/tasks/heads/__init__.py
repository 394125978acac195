"""Layers of a task above the encoder."""
