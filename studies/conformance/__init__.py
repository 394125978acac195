"""Masks and formats compared with the numbers of their papers."""
