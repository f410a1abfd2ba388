"""Several processes, each with devices of its own, run one plan together."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("jax")
SCRIPT = Path(__file__).with_name("jax_process.py")
PROCESSES = 2


def _free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def test_two_processes_with_two_devices_each():
    address = f"127.0.0.1:{_free_port()}"
    env = {name: x for name, x in os.environ.items() if not name.startswith(("XLA_", "JAX_"))}
    started = [
        subprocess.Popen(  # noqa: S603
            [sys.executable, SCRIPT, address, str(PROCESSES), str(number)],
            env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for number in range(PROCESSES)
    ]  # fmt: skip
    try:
        ended = [process.communicate(timeout=240) for process in started]
    finally:
        for process in started:
            process.kill()
    for process, (out, err) in zip(started, ended, strict=True):
        assert process.returncode == 0, err
        assert out.endswith("agrees\n")
