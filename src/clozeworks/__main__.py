"""`python -m clozeworks` is `clozeworks`."""

from clozeworks.cli.main import leave

if __name__ == "__main__":
    leave()
