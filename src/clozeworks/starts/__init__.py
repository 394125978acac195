"""How weights begin: word frequencies, word vectors, weights of another model."""
