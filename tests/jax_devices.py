"""JAX with virtual devices on the CPU, of which it must be told before it starts.

Every test that uses JAX imports this module first; tests are collected before any of them runs.
"""

from __future__ import annotations

import jax

COUNT = DEVICES = 16
jax.config.update("jax_num_cpu_devices", COUNT)
