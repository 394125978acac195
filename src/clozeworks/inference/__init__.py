"""A trained model at work: encode, predict, fill masks, generate, translate."""
