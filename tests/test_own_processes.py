"""How the tests themselves behave: signals, processes that a failing test leaves, long cases."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import psutil

ROOT = Path(__file__).parent.parent

FAILING = """
import gc, signal, subprocess, sys
import pytest

def test_left():
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"],
                             start_new_session=True, stdout=subprocess.PIPE)
    print("left", child.pid)
    assert False

def test_collected():
    gc.collect()  # a warning is an error

def test_interrupted():
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)

@pytest.mark.long
def test_long():
    assert False

@pytest.mark.long("a")
@pytest.mark.one_in(4)
@pytest.mark.parametrize("each", "abcdefghi")
def test_cases(each):
    assert each != "a"
"""


def test_where_interrupts_are_ignored_and_a_test_fails(tmp_path, monkeypatch):
    for name in ("EINDECOMP_ALL", "EINDECOMP_EVERY"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "test_three.py").write_text(FAILING)
    (tmp_path / "conftest.py").write_text((ROOT / "conftest.py").read_text())
    command = [sys.executable, "-m", "pytest", "-n0", "-q", "-p", "no:cacheprovider", "-c"]
    ran = subprocess.run(  # noqa: S603
        [*command, str(ROOT / "pyproject.toml"), "--rootdir", str(tmp_path), str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )  # fmt: skip
    assert "1 failed, 4 passed, 8 deselected" in ran.stdout, ran.stdout
    left = next(line for line in ran.stdout.splitlines() if line.startswith("left"))
    assert not psutil.pid_exists(int(left.split()[1]))
