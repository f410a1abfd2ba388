"""Where tests of engine `torch` run, and in which ways: on a GPU if there is one, else on the CPU.

What counts the bytes of an arena exactly runs on the CPU, where regions need no workspace.
"""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"
# Nothing is compiled unless a test is about that: on a GPU it takes seconds for each region.
HERE = {"device": DEVICE, "fuse": False}
PAGED = HERE | {"gpu_memory": "1GB" if ON_GPU else "100MB"}
WAYS = {
    "resident": HERE,
    "two memories": HERE | {"device": [DEVICE, DEVICE]},
    "paged": PAGED,
}
every_way = pytest.mark.parametrize("way", WAYS.values(), ids=[*WAYS])
