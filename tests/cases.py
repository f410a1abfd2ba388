"""How many cases run: those of `make test`, or all of them."""

from __future__ import annotations

import os

ALL = "EINDECOMP_ALL" in os.environ  # `make test-all`: the tests marked `long`, too
EVERY = ALL or "EINDECOMP_EVERY" in os.environ  # all cases of a test, as `make test-gpu` runs them
FACTOR = int(os.environ.get("EINDECOMP_EXAMPLES", "1"))  # times as many random cases
