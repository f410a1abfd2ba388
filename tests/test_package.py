"""The package as a whole: examples run, and importing it stays light."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import eindecomp as ed

EXAMPLES = Path(__file__).parent.parent / "examples"


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def multihead(x: dict[str, Any]) -> Any:
    q, k, v = (np.einsum("sa,ahd->hsd", x[n], x[f"W{n}"]) for n in "QKV")
    return np.einsum("hsd,ahd->sa", softmax(q @ k.swapaxes(1, 2) / 8**0.5) @ v, x["WO"])


BY_HAND = {
    "matmul": lambda x: x["X"] @ x["Y"],
    "squared_l2": lambda x: ((x["X"][:, :, None] - x["Y"]) ** 2).sum(1),
    "l_infinity": lambda x: np.abs(x["X"][:, :, None] - x["Y"]).max(1),
    "batched_transpose": lambda x: np.einsum("ijb,jbk->ik", x["X"], x["Y"]),
    "softmax": lambda x: softmax(x["X"]),
    "attention": lambda x: softmax(x["Q"] @ x["K"].T / 8) @ x["V"],
    "one_pass_attention": lambda x: softmax(x["Q"] @ x["K"].T / 8) @ x["V"],
    "multihead_attention": multihead,
}


def test_every_example_is_tested() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.ein")} == set(BY_HAND)


@pytest.mark.parametrize("name", sorted(BY_HAND))
def test_examples(name: str) -> None:
    graph = ed.load(EXAMPLES / f"{name}.ein")
    rng = np.random.default_rng(0)
    values = {v.name: rng.standard_normal(v.shape).astype(np.float32) for v in graph.inputs}
    [expected] = [BY_HAND[name]({n: x.astype(float) for n, x in values.items()})]
    for g in (graph, ed.rewrite(graph)):
        [found] = ed.evaluate(g, values).values()
        np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-4)


def test_graphs_and_errors_cross_processes() -> None:
    code = (
        "import pickle, sys, eindecomp as ed\n"
        "g = ed.parse('input X[i: 3]\\nZ[i] <- exp(X[i]) + 1')\n"
        "try: ed.parse('Z[i] <- Q[i]')\n"
        "except ed.TextError as error: e = error\n"
        "sys.stdout.buffer.write(pickle.dumps((g, {g: 1}, e)))"
    )
    seed = {"PYTHONHASHSEED": "1", "PATH": ""}
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, env=seed)  # noqa: S603
    graph, table, error = pickle.loads(run.stdout)  # noqa: S301 - written above
    same = ed.parse("input X[i: 3]\nZ[i] <- exp(X[i]) + 1")
    assert (graph, hash(graph)) == (same, hash(same))
    assert table[same] == 1
    assert (error.line, error.column) == (1, 9)


def test_the_solver_is_there_when_it_is_asked_for() -> None:
    code = "import eindecomp as ed; print(ed.solve.minimize(ed.solve.Problem.of([[3, 1]])).cost)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603
    assert run.stdout.strip() == "1"
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = ed.nothing  # type: ignore[attr-defined]


def test_importing_loads_no_framework() -> None:
    heavy = "{'torch', 'jax', 'ray', 'dask', 'numba', 'scipy', 'matplotlib'}"
    code = f"import sys, eindecomp; print(sorted({heavy} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603
    assert run.stdout.strip() == "[]"


def test_every_public_name_is_shown_and_there() -> None:
    code = "import eindecomp as ed; print(*dir(ed))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603
    shown = [name for name in run.stdout.split() if not name.startswith("__")]
    assert shown == sorted(set(ed.__all__) - {"__version__"})
    assert all(hasattr(ed, name) for name in shown)


@pytest.mark.parametrize("name", sorted(ed.__all__))
def test_every_public_name_is_imported_from_the_package(name: str) -> None:
    scope: dict[str, Any] = {}
    exec(f"from eindecomp import {name}", scope)  # noqa: S102
    assert scope[name] is getattr(ed, name)


def test_the_version_is_that_of_the_package() -> None:
    assert version("eindecomp") == ed.__version__
    assert re.fullmatch(r"\d+\.\d+\.\d+", ed.__version__)


def test_the_package_says_that_it_is_typed() -> None:
    assert (Path(ed.__file__).parent / "py.typed").is_file()
