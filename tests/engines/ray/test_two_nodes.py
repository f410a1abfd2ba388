"""The cluster of docs/ray.md, started by its own commands: two nodes, of which one is killed."""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep

import pytest
from agreement import without_ray
from processes import below

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "ray.md").read_text()
pytestmark = without_ray
KILL = """
import os, sys
import numpy as np
import eindecomp as ed
from eindecomp.engines.result import TaskFinished
from eindecomp.engines.ray.engine import RayEngine

steps = 10
text = "input X0[i: 400, j: 400], Y[j, k: 400]\\n"
text += "".join(f"X{n + 1}[i,k] <- max abs(X{n}[i,j] - Y[j,k])\\n" for n in range(steps))
graph, last = ed.parse(f"{text}output X{steps}"), f"X{steps}"
rng = np.random.default_rng(0)
x = {v.name: rng.standard_normal(v.shape).astype(np.float32) for v in graph.inputs}
plan = ed.plan(graph, 4, strategy=["j"], inputs="sharded")
wanted = ed.run(plan, x, "apart")[last]
ended = []

def kill(event):
    if isinstance(event, TaskFinished):
        ended.append(event)
        if len(ended) == 1:
            os.kill(int(sys.argv[2]), 9)

with RayEngine(address=sys.argv[1], task_seconds=0) as engine:
    assert len(engine.cluster.nodes()) == 2
    first = ed.run(plan, x, engine)
    found = ed.run(plan, x, engine, on_event=kill)
    assert found[last].tobytes() == first[last].tobytes() == wanted.tobytes()
    assert found.stats.bytes_moved == first.stats.bytes_moved == plan.cost
    assert found.stats.recovered and not first.stats.recovered, (found.stats, first.stats)
    placed = first.tensor(last).numpy()  # of which some was on the other node
    assert placed.tobytes() == wanted.tobytes()
    assert len(engine.cluster.nodes()) == 1
print("done")
"""


def commands(port):
    """The commands of the page, for a port that is free."""
    [block] = re.findall(r"```console\n(.*?)```", PAGE, re.S)
    lines = [line[2:] for line in block.splitlines() if line.startswith("$ ")]
    return [shlex.split(line.replace("6379", str(port)), comments=True) for line in lines]


def environment(folder, more):
    own = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    bin = Path(sys.executable).parent  # noqa: A001 - as the folder is called
    quiet = {"RAY_USAGE_STATS_ENABLED": "0", "HOME": str(folder), "PATH": f"{bin}:{own['PATH']}"}
    return own | quiet | more


def wait_for(path, words, process):
    until = monotonic() + 120
    while words not in path.read_text():
        assert process.poll() is None, path.read_text()
        assert monotonic() < until, path.read_text()
        sleep(0.2)


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    """What was started, the environment, and the command that uses it."""
    folder = tmp_path_factory.mktemp("nodes")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    exports, token, head, joined, *use = commands(port)
    assert exports[0] == "export"
    env = environment(folder, dict([exports[1].split("=")]))
    subprocess.run(token, env=env, check=True, capture_output=True)  # noqa: S603 - of our own page
    # Each is small: several such clusters may be tested on one machine.
    small = ["--object-store-memory", "100000000"]
    started = []
    try:
        for name, command in (("head", head), ("joined", joined)):
            log = folder / name
            with log.open("w") as opened:
                process = subprocess.Popen(  # noqa: S603 - of our own page
                    [*command, *small], env=env, stdout=opened, stderr=opened, cwd=ROOT
                )
            started.append(process)
            wait_for(log, "This command will now block", process)
        yield started, env, use
    finally:
        _end(reversed(started))


def _end(started):
    for process in started:
        children = below(process.pid)
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
        for pid in children:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.mark.long
def test_the_commands_of_the_page(nodes):
    _, env, uses = nodes
    for use in uses:
        done = subprocess.run(  # noqa: S603 - of our own
            use, env=env, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False
        )
        assert done.returncode == 0, done.stderr
        assert "2 workers" in done.stdout


@pytest.mark.long
def test_a_node_that_is_killed(nodes):
    (_, joined), env, uses = nodes
    [raylet] = [pid for pid, words in below(joined.pid).items() if "/raylet\0" in words]
    address = next(word for word in uses[0] if word.startswith("address=")).partition("=")[2]
    done = subprocess.run(  # noqa: S603 - of our own
        [sys.executable, "-c", KILL, address, str(raylet)],
        env=env, cwd=ROOT, capture_output=True, text=True, timeout=400, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("done\n")
