"""Every rank trains as the example does; one is killed while it writes its part of a checkpoint."""

from __future__ import annotations

import os
import runpy
import signal
import sys
from pathlib import Path

from eindecomp.engines import step_folders
from eindecomp.engines.spmd.job import connect

EXAMPLE = Path(__file__).parents[4] / "examples" / "data_parallel.py"


def main() -> None:
    victim, checkpoint, *rest = sys.argv[1:]
    write, written = step_folders.write_tensors, []

    def write_half(path, arrays):
        written.append(write(path, arrays))
        if len(written) == int(checkpoint):
            os.truncate(path, path.stat().st_size // 2)
            os.kill(os.getpid(), signal.SIGKILL)
        return written[-1]

    if connect().rank == int(victim):
        step_folders.write_tensors = write_half
    sys.argv = [str(EXAMPLE), *rest]
    runpy.run_path(str(EXAMPLE), run_name="__main__")


if __name__ == "__main__":
    main()
