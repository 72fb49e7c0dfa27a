"""The entry point of `memagent` and `python -m memagent_batch`."""

import sys

from memagent_batch.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
