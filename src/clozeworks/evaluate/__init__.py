"""Measuring: held-out figures and baselines."""
