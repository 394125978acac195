"""Text in which cues are planted, so that what there is to learn is known."""
