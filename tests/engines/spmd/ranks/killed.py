"""Every rank trains as the example does; one is killed while it writes its part of a checkpoint."""

from __future__ import annotations

import os
import runpy
import signal
import sys
from pathlib import Path

import safetensors.numpy

from eindecomp.engines.spmd.transport import connect

EXAMPLE = Path(__file__).parents[4] / "examples" / "data_parallel.py"


def main() -> None:
    victim, checkpoint, *rest = sys.argv[1:]
    write, written = safetensors.numpy.save_file, []

    def write_half(tensors, path, metadata) -> None:
        write(tensors, path, metadata)
        written.append(path)
        if len(written) == int(checkpoint):
            os.truncate(path, Path(path).stat().st_size // 2)
            os.kill(os.getpid(), signal.SIGKILL)

    if connect().rank == int(victim):
        safetensors.numpy.save_file = write_half
    sys.argv = [str(EXAMPLE), *rest]
    runpy.run_path(str(EXAMPLE), run_name="__main__")


if __name__ == "__main__":
    main()
