"""Static embeddings: an encoder as a table of token vectors, in our own format and in Model2Vec's."""
