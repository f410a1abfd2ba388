"""The bar: nothing of it where nobody waits, all tasks where somebody does."""

from __future__ import annotations

import subprocess
import sys

from eindecomp.engines.events import KernelCompiled, RunStarted, TaskFinished
from eindecomp.show import progress

SHORT = """
import sys
import numpy as np
import eindecomp as ed

plan = ed.plan(ed.parse("input X[i: 8]\\nZ[i] <- X[i] * 2\\noutput Z"), 2)
ed.run(plan, {"X": np.ones(8, np.float32)}, progress=True)
print("rich.progress" in sys.modules)
"""


def test_a_short_run_needs_no_bar():
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", SHORT], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"


def test_a_long_run_shows_how_many_tasks_are_done(monkeypatch, capsys):
    monkeypatch.setattr(progress, "_PATIENCE", -1.0)
    monkeypatch.setattr(progress, "_PAUSE", -1.0)
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress.showing(True) as follow:
        follow(RunStarted(4))
        follow(KernelCompiled("Z[i] <- X[i] * 2", 0, 0, 0.0, 0.5))
        for _ in range(3):
            follow(TaskFinished("Z", "compute", 0, 0, 0.0, 0.0))
    shown = capsys.readouterr().err
    assert "75%" in shown
    assert "kernels compiled: 1" in shown
