"""Compiled loops on disk: reused by other processes, mended when damaged, never required."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from eindecomp.kernels.cpu.compiling import assemble, intrinsics
from eindecomp.kernels.cpu.compiling import compile as compiling

PROGRAM = """
import numpy as np
from eindecomp.kernels.cache import record_compilations
from eindecomp.kernels.cpu.einsum import einsum_kernel
from eindecomp.lang.einsum import EinSum
from eindecomp.lang.monoid import SUM
from eindecomp.lang.scalar import Arg, call

f4 = np.dtype("float32")
op = EinSum((("secret_label", "k"),), ("secret_label",), call("exp", Arg(0)), SUM)
out = np.empty(3, f4)
with record_compilations() as seen:
    einsum_kernel(op, (f4,), f4).whole([np.zeros((3, 5), f4)], out)
assert all(start < end for _, start, end in seen)
print(out.tolist(), len(seen))
"""


def run(home: Path) -> str:
    environment = os.environ | {"XDG_CACHE_HOME": str(home)}
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.mark.long
def test_processes_share_what_one_compiled(tmp_path: Path) -> None:
    both = [
        subprocess.Popen(  # noqa: S603
            [sys.executable, "-c", PROGRAM],
            env=os.environ | {"XDG_CACHE_HOME": str(tmp_path)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    assert all("[5.0, 5.0, 5.0]" in process.communicate()[0] for process in both)
    assert run(tmp_path) == "[5.0, 5.0, 5.0] 0"
    folder = tmp_path / "eindecomp" / "kernels"
    assert folder.stat().st_mode & 0o777 == 0o700
    [file] = folder.iterdir()
    assert b"secret_label" not in file.read_bytes()
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    assert run(tmp_path) == "[5.0, 5.0, 5.0] 1"
    assert run(tmp_path) == "[5.0, 5.0, 5.0] 0"
    file.chmod(0o666)  # whoever can write to it could have written code
    assert run(tmp_path) == "[5.0, 5.0, 5.0] 1"
    assert file.stat().st_mode & 0o777 == 0o600


def test_what_is_stored_is_for_one_processor_and_one_way_of_compiling() -> None:
    """Code for another processor could load and then crash."""
    assert repr(compiling.processor()) in compiling.versions()
    for module in (assemble, intrinsics):
        assert repr(Path(module.__file__).read_text()) in compiling.versions()


def test_no_folder_is_needed(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    assert run(blocked) == "[5.0, 5.0, 5.0] 1"


def test_a_function_that_c_lacks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    source = "def kernel(at):\n    store_complex128(at, 0, np.log2(load_complex128(at, 0)))\n"
    monkeypatch.setattr(assemble, "_MATH", {"log2"})
    with pytest.raises(TypeError, match="the C library has no clog2"):
        compiling.compile_source(source, "log2")
