"""Ray is started, joined and left; what was there before is there afterwards."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from agreement import without_ray

import eindecomp as ed
from eindecomp.engines.ray.engine import RayEngine

pytestmark = without_ray
START = """
import numpy as np
import eindecomp as ed
from eindecomp.engines.ray.engine import RayEngine

graph = ed.parse("input X[i: 8]\\nZ[i] <- X[i] + 1\\noutput Z")
plan, x = ed.plan(graph, 2), {"X": np.arange(8, dtype=np.float32)}

def check(engine):
    result = ed.run(plan, x, engine)
    assert (result["Z"] == x["X"] + 1).all()
    return result
"""
OURS = """
import sys
assert "ray" not in sys.modules  # nothing is started before something runs
with RayEngine(workers=1, memory="100MB") as engine:
    result = check(engine)
    import ray
    [node] = ray.nodes()
    assert node["NodeManagerAddress"] == "127.0.0.1"
    assert node["Resources"]["CPU"] == 1
    assert abs(node["Resources"]["object_store_memory"] - 1e8) < 1e6
    assert os.environ["RAY_AUTH_MODE"] == "token"
    try:
        RayEngine(workers=2).cluster
    except ed.InputError as error:
        assert "workers: this process uses a Ray with 1 already" in str(error)
    kept, folder = result.tensor("Z"), engine.folder.path
    assert folder.exists()
assert not ray.is_initialized() and not folder.exists()
try:
    kept.numpy()
except ed.InputError as error:
    assert "tensor 'Z' is gone: the Ray that had it was shut down" in str(error)
print("done")
"""
THEIRS = """
import ray
ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False)
ref = ray.put(5)
with RayEngine() as engine:
    check(engine)
check("ray")
assert ray.is_initialized() and ray.get(ref) == 5
print("done")
"""


@pytest.mark.long
@pytest.mark.parametrize("program", [OURS, THEIRS], ids=["ours", "theirs"])
def test_a_ray_of_this_process(program):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    done = subprocess.run(  # noqa: S603 - our own
        [sys.executable, "-c", f"import os\n{START}{program}"],
        env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == "done\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workers": 0}, "workers is a number of processes, not 0"),
        ({"task_seconds": -1}, "task_seconds is a number, 0 or more, not -1"),
        ({"task_seconds": "few"}, "task_seconds is a number, 0 or more, not 'few'"),
        ({"task_seconds": float("nan")}, "task_seconds is a number, 0 or more, not nan"),
        ({"directory": "/nowhere/at/all"}, "directory: there is no folder '/nowhere/at/all'"),
        ({"memory": "much"}, "memory must be a number of bytes"),
        ({"address": "127.0.0.1:1", "workers": 2}, "workers and memory are those of the cluster"),
        ({"address": "127.0.0.1:1"}, "no Ray at '127.0.0.1:1' can be joined: .*refused"),
    ],
)
def test_options_that_cannot_be(options, message, monkeypatch):
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    with pytest.raises(ed.EinDecompError, match=message):
        _ = RayEngine(**options).cluster


@pytest.mark.long
def test_another_cluster_cannot_be_joined_as_well(engine):
    assert engine.cluster.is_open
    with pytest.raises(ed.InputError, match=r"cannot join '10.0.0.1:6379' too"):
        RayEngine(address="10.0.0.1:6379")


@pytest.mark.long
def test_machines_that_share_no_files_are_refused(engine, monkeypatch):
    """Arrays of this process are of no use to them; a directory for all must be named."""
    monkeypatch.setattr(type(engine.cluster), "is_one_machine", lambda _: False)
    other = RayEngine()
    with pytest.raises(ed.InputError, match="directory: this Ray has nodes on other machines"):
        _ = other.folder
