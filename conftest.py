"""JAX has virtual devices on the CPU in all tests and documents, of which it is told here.

It reads the environment when it is imported, which no test does before this.
"""

import os

os.environ.setdefault("JAX_NUM_CPU_DEVICES", "16")
