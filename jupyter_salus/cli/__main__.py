"""`python -m jupyter_salus.cli`: the command line where no script is installed."""

import sys

from . import main

sys.exit(main())
