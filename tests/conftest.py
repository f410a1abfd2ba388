"""How many random cases run: few by default, `EINDECOMP_EXAMPLES=20` for twenty times as many."""

import os

from hypothesis import HealthCheck, settings

from cases import FACTOR

settings.register_profile(
    "eindecomp",
    max_examples=10 * FACTOR,
    deadline=None,
    derandomize="CI" in os.environ,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("eindecomp")
