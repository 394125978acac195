"""`python -m clozeworks` is `clozeworks`."""

import sys

from clozeworks.cli import main

if __name__ == "__main__":
    sys.exit(main())
