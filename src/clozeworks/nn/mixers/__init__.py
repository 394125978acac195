"""How tokens look at one another: a spec and the module it builds a file."""
