"""Whether more cases are asked for, by `EINDECOMP_EXAMPLES=20 make test`."""

from __future__ import annotations

import os

import pytest

FACTOR = int(os.environ.get("EINDECOMP_EXAMPLES", "1"))
MANY = FACTOR > 1
with_more_cases = pytest.mark.skipif(not MANY, reason="it takes long: set EINDECOMP_EXAMPLES=20")
