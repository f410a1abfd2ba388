"""Every rank: what does not fit on a disk or in memory is refused by all, and leaves nothing."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import eindecomp as ed
from eindecomp.engines.spmd.job import connect


def main() -> None:
    folder = Path(sys.argv[1])
    graph = ed.parse("input X[i: 1000, j: 1000]\nZ[i,j] <- X[i,j] + 1\noutput Z")
    x = np.random.default_rng(0).random((1000, 1000), "float32")  # which nothing compresses
    for kind in (".npy", ".zarr"):
        run = ed.compile(ed.plan(graph, 2), engine="spmd", outputs={"Z": folder / f"z{kind}"})
        told = rf"outputs: Z cannot be written to .*/z{kind}: [Nn]o space left"
        with pytest.raises(ed.InputError, match=told):
            run({"X": x})
    huge = "input X[i: 4000000], Y[k: 4000000]\nZ[i,k] <- X[i] * Y[k]\noutput Z"
    with pytest.raises(ed.InputError, match=r"running needs .* are available"):
        ed.compile(ed.plan(ed.parse(huge), 2), engine="spmd")
    if connect().rank == 0:
        assert not list(folder.iterdir())
        sys.stdout.write("all agree\n")


if __name__ == "__main__":
    main()
