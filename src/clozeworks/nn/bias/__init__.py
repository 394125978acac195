"""What is added to the scores of attention: one file a kind."""
