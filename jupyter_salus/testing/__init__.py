"""For tests of jupyter_salus and of what builds on it: a clock to set, and a pytest plugin that finds leaks.

`pytest_plugins = ["jupyter_salus.testing.plugin"]` in a `conftest.py` gives the fixtures. Production imports none of it.
"""

from .clock import FakeClock

__all__ = ["FakeClock"]
