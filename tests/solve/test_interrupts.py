"""Ctrl-C while numba is imported: it is told, and numba is whole all the same."""

from __future__ import annotations

import signal
import subprocess
import sys
from threading import Thread

import pytest

from eindecomp.solve.compiled import uninterrupted

PROGRAM = """
import signal, sys

class Interrupt:
    done = False
    def find_spec(self, name, *_):
        if name == "{at}" and not self.done:
            self.done = True
            signal.raise_signal(signal.SIGINT)

def double(x):
    return 2 * x

def run():
    from eindecomp.solve.compiled import compiled
    return compiled(double)(1.0)

sys.meta_path.insert(0, Interrupt())
try:
    run()
except KeyboardInterrupt:
    print("interrupted", end=" ")
print(run())
"""


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "at",
    [
        "numba.core.types.misc",
        "numba.core.typing.builtins",
        "numba.core.typing.mathdecl",  # which is loaded when numba first compiles something
    ],
)
def test_an_interrupted_import_can_be_done_again(at: str) -> None:
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", PROGRAM.format(at=at)], capture_output=True, text=True, check=False
    )
    assert (done.stderr, done.stdout) == ("", "interrupted 2.0\n")


def test_an_interrupt_waits_for_the_end() -> None:
    done = []

    def work() -> None:
        with uninterrupted():
            signal.raise_signal(signal.SIGINT)
            done.append("all")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["all"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_what_fails_says_so() -> None:
    with pytest.raises(ZeroDivisionError), uninterrupted():
        _ = 1 // 0
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_other_threads_are_not_held() -> None:
    found = []

    def work() -> None:
        with uninterrupted():
            found.append(signal.getsignal(signal.SIGINT))

    thread = Thread(target=work)
    thread.start()
    thread.join()
    assert found == [signal.default_int_handler]
