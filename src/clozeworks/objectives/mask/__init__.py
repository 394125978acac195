"""Corruptions that hide tokens by replacing them."""
