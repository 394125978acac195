"""Checkpoints of a run: saved beside the training, by one process or several."""
