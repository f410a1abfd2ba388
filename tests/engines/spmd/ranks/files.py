"""Every rank: inputs come from files, and outputs are written to files."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

import eindecomp as ed
from eindecomp.engines.spmd.job import connect

TEXT = """
input X[i: 10, j: 6], Y[j, k: 8]
Z[i,k] <- sum X[i,j] * Y[j,k]
R[i] <- sum Z[i,k]
S[] <- sum R[i]
output Z, R, S
"""


def main() -> None:
    folder, kind, *device = Path(sys.argv[1]), *sys.argv[2:]
    options = {"engine": "spmd", "device": device[0] if device else None}
    ranks, rank = connect().size, connect().rank
    graph = ed.parse(TEXT)
    inputs = {"X": folder / "x.npy", "Y": f"{folder / 'y.safetensors'}#weights"}
    paths = {name: folder / f"{name}{kind}" for name in "ZRS"}
    for labels in (["i"], ["k"], ["j"]):
        plan = ed.plan(graph, ranks, strategy=labels)
        found = ed.run(plan, inputs, **options, outputs=paths)
        for name, path in paths.items():
            whole = found[name]
            if rank == 0:
                assert np.array_equal(read(path), whole), name
    # What cannot be written is told by all ranks, and leaves nothing.
    bad = folder / "gone"
    bad.mkdir(exist_ok=True)
    run = ed.compile(plan, **options, outputs={"Z": bad / f"z{kind}"})
    run({name: np.ones(graph[name].shape) for name in "XY"})["Z"]  # all ranks are here now
    if rank == 0:
        shutil.rmtree(bad)
        bad.touch()
    run.engine.ranks.gather_bytes(b"")
    with pytest.raises(ed.InputError, match="rank 0"):
        run({name: np.ones(graph[name].shape) for name in "XY"})
    if rank == 0:
        left = sorted(path.name for path in folder.iterdir())
        assert left == sorted(
            ["gone", "x.npy", "y.safetensors", *(p.name for p in paths.values())]
        ), left
        sys.stdout.write("all agree\n")


def read(path: Path) -> np.ndarray:
    if path.suffix == ".npy":
        return np.load(path)
    import zarr

    return zarr.open_array(path, mode="r")[...]


if __name__ == "__main__":
    main()
