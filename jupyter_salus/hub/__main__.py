"""`python -m jupyter_salus.hub`: see `service`."""

from __future__ import annotations

import sys

from .service import main

sys.exit(main())
