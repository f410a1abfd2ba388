"""How many virtual devices JAX has on the CPU; scripts that tests start have them, too."""

from __future__ import annotations

import os

COUNT = int(os.environ["JAX_NUM_CPU_DEVICES"])
