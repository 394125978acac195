"""Optimizers as parts of a recipe: a spec says what, `build` gives the torch optimizer that does it."""
