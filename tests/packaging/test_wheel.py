"""The wheel, in an environment with core dependencies only, and with each extra.

The environment takes half a minute to make, so one test makes it and looks at everything in it.
`EINDECOMP_EXTRAS=zarr,models` also installs these extras, each in an environment of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.metadata import Metadata

import eindecomp as ed

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "eindecomp"
MATMUL = ROOT / "examples" / "matmul.ein"
PINS = ["--constraint", str(ROOT / "constraints.txt")]

CORE = """
import importlib.metadata, json
from eindecomp import *
import numpy as np, eindecomp as ed

graph = ed.load({matmul!r})
arrays = {{v.name: np.ones(v.shape, "float32") for v in graph.inputs}}
plan = ed.plan(graph, 2)
for engine in ("threads", "apart"):
    np.testing.assert_allclose(ed.run(plan, arrays, engine)["Z"], ed.evaluate(graph, arrays)["Z"])
assert "Z" in plan.explain() and len(plan.compare()) > 1
assert ed.simulate(plan, "cpu-cluster").seconds > 0
step = ed.models.ffnn(8, 4, 4, 3)
ed.models.fit(step, ed.models.Synthetic(8, 4, 3), ed.models.initial(step), lr=0.1, steps=2)
ed.parse("input X[s: 2, t: 3]\\nP[s,t] <- softmax[t] X[s,t]\\noutput P")
installed = sorted(d.name.lower() for d in importlib.metadata.distributions())
print(json.dumps([ed.__version__, installed]))
"""

# What each feature says where its package is missing.
MISSING = """
import json, pathlib
import numpy as np, eindecomp as ed
from eindecomp.models.llama.tokens import Tokenizer

graph = ed.load({matmul!r})
plan = ed.plan(graph, 2)
arrays = {{v.name: np.ones(v.shape, "float32") for v in graph.inputs}}
step = ed.models.ffnn(8, 4, 4, 3)
state = ed.models.initial(step)
pathlib.Path("w.safetensors").touch()
tries = {{
    "from_torch": lambda: ed.from_torch(None),
    "torch_weights": lambda: ed.torch_weights(None, graph),
    "to_dtensor": plan.to_dtensor,
    "verify_torch": lambda: plan.verify_torch(None),
    "engine torch": lambda: ed.run(plan, arrays, "torch"),
    "engine spmd": lambda: ed.run(plan, arrays, "spmd", transport="torch"),
    "from_jax": lambda: ed.from_jax(None),
    "jax_inputs": lambda: ed.jax_inputs(None),
    "to_jax": plan.to_jax,
    "verify_jax": plan.verify_jax,
    "engine jax": lambda: ed.compile(plan, "jax"),
    "engine ray": lambda: ed.run(plan, arrays, "ray"),
    "engine spmd by mpi": lambda: ed.run(plan, arrays, "spmd", transport="mpi"),
    "zarr": lambda: ed.run(plan, {{**arrays, "X": "x.zarr"}}),
    "safetensors": lambda: ed.run(plan, {{**arrays, "X": "w.safetensors#X"}}),
    "checkpoint": lambda: ed.models.fit(step, [], state, lr=0.1, checkpoint="run"),
    "tokenizer": lambda: Tokenizer("."),
}}
said = {{}}
for name, attempt in tries.items():
    try:
        attempt()
    except ed.InputError as error:
        said[name] = str(error)
print(json.dumps(said))
"""
EXTRA_OF = {
    "from_torch": "torch", "torch_weights": "torch", "to_dtensor": "torch",
    "verify_torch": "torch", "engine torch": "torch", "engine spmd": "torch", "from_jax": "jax",
    "jax_inputs": "jax", "to_jax": "jax", "verify_jax": "jax", "engine jax": "jax",
    "engine ray": "ray", "engine spmd by mpi": "mpi", "zarr": "zarr", "safetensors": "models",
    "checkpoint": "models", "tokenizer": "models",
}  # fmt: skip

TYPED = """
import numpy as np
import eindecomp as ed

graph = ed.parse("input X[i: 8]\\nZ[i] <- X[i] * 2\\noutput Z")
plan = ed.plan(graph, devices=2, objective="bytes")
reveal_type(graph)
reveal_type(plan)
reveal_type(plan.cost)
reveal_type(ed.run(plan, {"X": np.ones(8, "float32")}))
reveal_type(ed.compile(plan))
reveal_type(ed.simulate(plan, "cpu-cluster"))
reveal_type(ed.solve.minimize(ed.solve.Problem.of([[3, 1]])))
reveal_type(ed.models.chain(8))
reveal_type(ed.__version__)
ed.plan(graph, devices="two")
"""
REVEALED = [
    "Graph", "Plan", "int | float", "Result", "Executable", "SimulatedRun", "Solution", "Graph",
    "str",
]  # fmt: skip

# What each extra is for, once it is installed.
WORKS = {
    "jax": "import eindecomp as ed; ed.run(plan, arrays, 'jax')",
    "mkl": "ed.run(plan, arrays)",
    "models": """
import tokenizers
step = ed.models.ffnn(8, 4, 4, 3)
state = ed.models.initial(step)
ed.models.save_checkpoint("run", step, ed.models.Checkpoint(1, state, [0.7]))
assert ed.models.load_checkpoint("run").losses == [0.7]
""",
    "mpi": "import mpi4py",
    "ray": "ed.run(plan, arrays, 'ray')",
    "torch": "ed.run(plan, arrays, 'torch', device='cpu'); plan.to_dtensor()",
    "zarr": """
import zarr
zarr.save_array("x.zarr", arrays["X"])
np.testing.assert_allclose(ed.run(plan, {**arrays, "X": "x.zarr"})["Z"], 1.0 * len(arrays["X"]))
""",
}
SETTING = """
import numpy as np, eindecomp as ed
graph = ed.parse("input X[i: 8, j: 8], Y[j, k: 8]\\nZ[i,k] <- sum X[i,j] * Y[j,k]\\noutput Z")
plan = ed.plan(graph, 2, pieces="even")
arrays = {v.name: np.ones(v.shape, "float32") for v in graph.inputs}
"""


def call(*command: str | Path, folder: Path, status: int = 0) -> str:
    """Run a command apart from this environment, and give back what it printed."""
    outside = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    done = subprocess.run(  # noqa: S603
        [str(word) for word in command], cwd=folder, env=outside, capture_output=True, text=True
    )
    assert done.returncode == status, f"{command[0]}: {done.stdout}\n{done.stderr}"
    return done.stdout if not status else done.stderr


def build_wheel(folder: Path) -> Path:
    """The wheel of this tree; skips where there is no index to take the build system from."""
    pip = [sys.executable, "-m", "pip"]
    wheel = [*pip, "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)]
    done = subprocess.run(wheel, capture_output=True, text=True)  # noqa: S603
    if "No matching distribution found for hatchling" in done.stderr:
        pytest.skip("there is no package index to take hatchling from")
    assert done.returncode == 0, done.stderr
    [built] = folder.glob("*.whl")
    return built


def install(folder: Path, requirement: str) -> Path:
    """The Python of a fresh environment with that installed, and what it needs."""
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "--quiet"]
    call(*pip, "install", "--no-compile", *PINS, requirement, folder=folder)
    return python


@pytest.mark.long
def test_the_wheel_works_with_core_dependencies_only(tmp_path):
    wheel = build_wheel(tmp_path)
    check_contents(wheel)
    python = install(tmp_path / "core", str(wheel))
    matmul = str(MATMUL)
    said = call(python, "-c", CORE.format(matmul=matmul), folder=tmp_path)
    version, installed = json.loads(said)
    assert version == ed.__version__
    assert not {"torch", "jax", "ray", "zarr", "safetensors", "pytest"} & set(installed)
    check_commands(python.with_name("eindecomp"), tmp_path)
    check_missing(json.loads(call(python, "-c", MISSING.format(matmul=matmul), folder=tmp_path)))
    check_types(python, tmp_path)


def check_contents(wheel: Path) -> None:
    """All files of the source, and nothing else; metadata as an index wants it."""
    own = {
        f"eindecomp/{path.relative_to(SOURCE).as_posix()}"
        for path in SOURCE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with ZipFile(wheel) as file:
        names = {name for name in file.namelist() if ".dist-info/" not in name}
        [metadata] = [name for name in file.namelist() if name.endswith(".dist-info/METADATA")]
        about = Metadata.from_email(file.read(metadata), validate=True)
    assert names == own | {"eindecomp_command.py"}
    assert {"eindecomp/py.typed", "eindecomp/lang/text/ein.lark"} <= names
    assert str(about.version) == ed.__version__
    assert about.description_content_type == "text/markdown"
    assert about.description == (ROOT / "README.md").read_text()
    assert {*EXTRA_OF.values(), *WORKS} <= {*(about.provides_extra or ())}


def check_commands(eindecomp: Path, folder: Path) -> None:
    assert call(eindecomp, "--version", folder=folder) == f"eindecomp {ed.__version__}\n"
    call(eindecomp, "plan", MATMUL, "-p", "2", "-o", "plan.json", folder=folder)
    assert "Z" in call(eindecomp, "explain", "plan.json", folder=folder)
    assert "sqrt" in call(eindecomp, "compare", "plan.json", folder=folder)
    call(eindecomp, "run", "plan.json", "--random", "--check", folder=folder)
    call(eindecomp, "draw", "plan.json", "-o", "plan.svg", folder=folder)
    call(eindecomp, "report", "plan.json", "-o", "plan.html", folder=folder)
    refused = call(eindecomp, "import", "torch", "made:up", folder=folder, status=1)
    assert refused == "eindecomp: torch is not installed: pip install 'eindecomp[torch]'\n"


def check_missing(said: dict[str, str]) -> None:
    wanted = {name: f"pip install 'eindecomp[{extra}]'" for name, extra in EXTRA_OF.items()}
    assert {name: how for name, how in wanted.items() if how not in said.get(name, "")} == {}


def check_types(python: Path, folder: Path) -> None:
    """A type checker that only has the installed package sees what the public names are."""
    program = folder / "typed.py"
    program.write_text(TYPED)
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", python, program]
    told = json.loads(
        subprocess.run(command, capture_output=True, text=True, cwd=folder).stdout  # noqa: S603
    )["generalDiagnostics"]
    revealed = [each["message"] for each in told if each["severity"] == "information"]
    assert [line.partition(" is ")[2].strip('"') for line in revealed] == REVEALED
    [error] = [each["message"] for each in told if each["severity"] == "error"]
    assert '"devices"' in error


WANTED = [name for name in os.environ.get("EINDECOMP_EXTRAS", "").split(",") if name]


@pytest.mark.parametrize("extra", WANTED)
def test_an_extra_is_enough(extra, tmp_path):
    wheel = build_wheel(tmp_path)
    python = install(tmp_path / extra, f"eindecomp[{extra}] @ {wheel.as_uri()}")
    call(python, "-c", SETTING + WORKS[extra], folder=tmp_path)
