"""How many random cases run: few by default, `EINDECOMP_EXAMPLES=20` times as many on request."""

import os

from hypothesis import HealthCheck, settings

factor = int(os.environ.get("EINDECOMP_EXAMPLES", "1"))
settings.register_profile(
    "eindecomp",
    max_examples=15 * factor,
    deadline=None,
    derandomize="CI" in os.environ,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("eindecomp")
