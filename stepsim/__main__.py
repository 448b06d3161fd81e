"""``python -m stepsim`` is ``stepsim``."""

import sys

from stepsim.cli import main

if __name__ == "__main__":
    sys.exit(main())
