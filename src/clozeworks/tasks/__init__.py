"""Tasks: what a labelled row is, what is predicted of it, how good that was; each written once for every encoder."""
