"""Random cases: compositions of parts, and inputs of commands."""
