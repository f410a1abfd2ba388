"""Running a script in a process of its own, as somebody does who has just started Python."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PATIENCE = 400.0
"""Seconds after which a script hangs: what a GPU runs is compiled first, beside other tests."""
# What the tests set for themselves: a person has none of it.
_OURS = ("JAX_NUM_CPU_DEVICES", "TRITON_INTERPRET", "XLA_FLAGS")


def run_fresh(folder: Path, *arguments: str, **environment: str) -> None:
    """Run Python in a folder that has the examples; fail with what it said if it fails."""
    examples = folder / "examples"
    if not examples.exists():
        examples.symlink_to(ROOT / "examples")
    own = {name: value for name, value in os.environ.items() if name not in _OURS}
    found = subprocess.run(  # noqa: S603 - our own scripts
        [sys.executable, *arguments], cwd=folder, env=own | environment, check=False,
        capture_output=True, text=True, timeout=PATIENCE,
    )  # fmt: skip
    assert found.returncode == 0, found.stdout[-2000:] + found.stderr[-4000:]
