"""Measuring: held-out metrics and baselines."""
