"""Static word vectors: text as a stream of words, kernels that train on it, tables of vectors."""
