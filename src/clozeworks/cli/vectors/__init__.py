"""Word vectors: one file a command of `clozeworks vectors`."""
