"""The program before its command runs: an interrupt then is no exception of some module."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import signal, sys
from importlib.abc import MetaPathFinder
import eindecomp_command

class Watch(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name in ("eindecomp", "eindecomp.cli.root"):
            print(name, signal.getsignal(signal.SIGINT).name)

sys.meta_path.insert(0, Watch())
sys.argv = ["eindecomp", "--version"]
try:
    eindecomp_command.main()
finally:
    print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)
"""


def test_interrupts_end_the_program_while_modules_are_loaded():
    run = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True)  # noqa: S603
    assert run.returncode == 0, run.stderr
    first, second, version, usual = run.stdout.splitlines()
    assert (first, second) == ("eindecomp SIG_DFL", "eindecomp.cli.root SIG_DFL")
    assert version.startswith("eindecomp ")
    assert usual == "True"
