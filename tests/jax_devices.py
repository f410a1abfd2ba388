"""Virtual devices of JAX on the CPU: imported before JAX starts, as it fixes their number then."""

from __future__ import annotations

import jax

DEVICES = 12

jax.config.update("jax_num_cpu_devices", DEVICES)
