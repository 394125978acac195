"""Training: a loop that is a generator, and what it needs."""
