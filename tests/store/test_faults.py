"""Every writer of ours on a disk that fails: the old file or the new one, and nothing else."""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path

import numpy as np
import pytest

import eindecomp as ed
from eindecomp import models
from eindecomp.cli.run import write_npz
from eindecomp.engines.engine import Ranks
from eindecomp.engines.result import TaskFinished
from eindecomp.engines.step_folders import StepFolders
from eindecomp.engines.whole_files import write_whole
from eindecomp.kernels import cache
from eindecomp.show.trace import tracing
from faults import check_all_or_nothing, content

SOURCE = Path(ed.__file__).parent
GRAPH = ed.parse("input X[i: 8, j: 6], W[j, k: 4]\nZ[i,k] <- sum X[i,j] * W[j,k]\noutput Z")
STEP = models.ffnn(8, 4, 4, 3, optimizer="momentum")
ARRAYS = {v.name: np.ones(v.shape, v.dtype) for v in GRAPH.inputs}


def save(step: int, seed: int = 0):
    made = models.Checkpoint(step, models.initial(STEP, seed=seed), [0.5 + seed] * step)
    return lambda folder: models.save_checkpoint(folder / "run", STEP, made)


def last_step(folder: Path):
    """What training would go on from, and what nobody asked for."""
    hidden = [each for each in content(folder) if Path(each).name.startswith(".")]
    if not (folder / "run").exists():
        return hidden, None
    at = models.load_checkpoint(folder / "run")
    return hidden, at.losses, {name: array.tobytes() for name, array in at.state.items()}


def run_step(number: int, value: float):
    """A checkpoint within a run."""

    def write(folder: Path) -> None:
        steps = StepFolders(folder / "run", Ranks())
        steps.write(number, {"0.0": np.full(50, value)}, {}, {"run": "of a test"})

    return write


def last_of_run(folder: Path):
    hidden = [each for each in content(folder) if Path(each).name.startswith(".")]
    step = StepFolders(folder / "run", Ranks()).last()
    return hidden, step and (step.number, step.shard(0).read_bytes())


def trace(folder: Path) -> None:
    with tracing(folder / "run.json") as listen:
        listen(TaskFinished("Z", "compute", 0, 0, 0.0, 1.0))


PLAN = ed.plan(GRAPH, 4)
WRITERS = {
    "bytes": lambda at: write_whole(at / "file", b"new" * 5000),
    "pieces": lambda at: write_whole(at / "file", lambda f: [f.write(b"new" * 3000)] * 3),
    "plan": lambda at: PLAN.save(at / "plan.json"),
    "machine": lambda at: ed.Machine(1e12, 1e11, 1e10).save(at / "machine.json"),
    "picture": lambda at: PLAN.draw_tiles("Z", path=at / "plan.svg"),
    "report": lambda at: PLAN.report(at / "plan.html", compare=False),
    "trace": trace,
    "arrays": lambda at: write_whole(at / "run.npz", lambda f: write_npz(f, ARRAYS)),
}
NAMES = (
    "file", "plan.json", "machine.json", "plan.svg", "plan.html", "run.json", "run.npz",
)  # fmt: skip


def old(folder: Path) -> None:
    """Something under every name that is written."""
    for name in NAMES:
        (folder / name).write_bytes(b"old" * 9)


@pytest.mark.parametrize("replaced", [True, False], ids=["replaced", "new"])
@pytest.mark.parametrize("what", WRITERS)
def test_files_are_the_old_or_the_new(what, replaced, tmp_path):
    seen = check_all_or_nothing(tmp_path, old if replaced else lambda _: None, WRITERS[what])
    assert seen >= {"open", "write", "fsync", "replace"}


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("before", "after"),
    [(None, save(4)), (save(2), save(4)), (save(4), save(4, 1)), (save(6), save(4, 1))],
    ids=["first", "next", "same", "over"],
)
def test_checkpoints_are_the_old_or_the_new(before, after, tmp_path):
    seen = check_all_or_nothing(tmp_path, before or (lambda _: None), after, last_step)
    assert seen >= {"mkdir", "open", "write", "fsync", "replace"}


@pytest.mark.parametrize(("first", "second"), [(2, 4), (4, 4)])
def test_checkpoints_within_runs_are_the_old_or_the_new(first, second, tmp_path):
    check_all_or_nothing(tmp_path, run_step(first, 1), run_step(second, 2), last_of_run)


def test_caches_have_the_old_or_the_new(tmp_path, monkeypatch):
    def stores(data: bytes):
        def store(folder: Path) -> None:
            monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
            cache.store("key", data)

        return store

    def read(folder: Path):
        monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
        return cache.load("key"), len(content(folder))

    check_all_or_nothing(tmp_path, stores(b"old"), stores(b"new" * 5000), read)


def write_in_place(folder: Path) -> None:
    (folder / "file").write_bytes(b"new" * 5000)


def write_and_leave(folder: Path) -> None:
    (folder / "other").write_bytes(b"new" * 5000)
    (folder / "other").rename(folder / "file")


def write_with_numpy(folder: Path) -> None:
    np.save(folder / "file.npy", np.ones(5000))


def write_once(folder: Path) -> None:
    handle = os.open(folder / "beside", os.O_WRONLY | os.O_CREAT)
    try:
        os.write(handle, b"new" * 5000)
    finally:
        os.close(handle)
        (folder / "beside").rename(folder / "file")


@pytest.mark.parametrize("bad", [write_in_place, write_and_leave, write_with_numpy, write_once])
def test_writers_that_leave_something_else_are_found(bad, tmp_path):
    with pytest.raises(AssertionError, match=r"at change \d|room for"):
        check_all_or_nothing(tmp_path, old, bad)


# Where files are written; everything else asks one of these to. The last one writes to a folder of
# its own that nobody reads later.
WRITING = {
    "engines/whole_files.py", "engines/safetensors_file.py",
    "engines/step_folders.py", "engines/array_files.py", "kernels/cache.py",
    "cli/run.py",  # a member of an archive that is written whole
    "cli/options.py",  # to nowhere
    "engines/ray/tensors.py",
}  # fmt: skip


MAY_WRITE = re.compile(r"open\w*\(|memmap|write_text|write_bytes|tofile|np\.save")


def test_files_are_written_in_few_places():
    found = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if MAY_WRITE.search(text := path.read_text())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and _writes(node)
    }
    assert found == WRITING


def _writes(call: ast.Call) -> bool:
    name = getattr(call.func, "attr", getattr(call.func, "id", ""))
    texts = [arg.value for arg in call.args if isinstance(arg, ast.Constant)]
    modes = [
        t for t in texts if isinstance(t, str) and t.strip("bt") in ("w", "a", "x", "w+", "r+")
    ]
    of_numpy = isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) == "np"
    return (
        name in ("write_text", "write_bytes", "tofile")
        or (name in ("open", "open_memmap", "memmap", "fdopen") and bool(modes))
        or (of_numpy and name in ("save", "savetxt"))
    )
