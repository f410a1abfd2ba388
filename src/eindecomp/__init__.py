"""EinDecomp: tensor computations written declaratively, as graphs of Einstein summations.

>>> import eindecomp as ed
>>> graph = ed.parse('''
... input X[i: 2, j: 3], Y[j, k: 2]
... Z[i,k] <- sum X[i,j] * Y[j,k]
... output Z
... ''')
>>> ed.evaluate(graph, {"X": [[1, 2, 3], [4, 5, 6]], "Y": [[1, 0], [0, 1], [1, 1]]})["Z"]
array([[ 4.,  5.],
       [10., 11.]], dtype=float32)
"""

from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from eindecomp.errors import (
    EXTRAS,
    EinDecompError,
    ExpressionError,
    GradientError,
    GraphError,
    InfeasibleError,
    InputError,
    LabelWarning,
    PlanError,
    RunError,
    TextError,
    not_installed,
)

if TYPE_CHECKING:
    from eindecomp import models, solve
    from eindecomp.api.compile import (
        compile,  # noqa: A004 - as `ed.compile`
        plan_together,
        run,
        simulate,
    )
    from eindecomp.api.einsum import einsum
    from eindecomp.engines.executable import Executable
    from eindecomp.frontends.jax.importing import from_jax, jax_inputs
    from eindecomp.frontends.redistribution import Redistribution, redistribution
    from eindecomp.frontends.torch.importing import from_torch, torch_weights
    from eindecomp.graph.evaluate import evaluate
    from eindecomp.graph.grad import grad
    from eindecomp.graph.graph import Graph
    from eindecomp.graph.rewrites.rewrite import rewrite
    from eindecomp.graph.text.elaborate import extend, load, parse
    from eindecomp.graph.vertex import Vertex
    from eindecomp.lang.einsum import EinSum
    from eindecomp.lang.monoid import Monoid, monoid
    from eindecomp.planner.costs.cost import Cost
    from eindecomp.planner.costs.machine import Machine
    from eindecomp.planner.costs.price import Objective
    from eindecomp.planner.make import cost, plan
    from eindecomp.planner.plan import Plan
    from eindecomp.tra.simulation.simulate import SimulatedRun

__version__ = "0.1.0"

__all__ = [
    "Cost",
    "EinDecompError",
    "EinSum",
    "Executable",
    "ExpressionError",
    "GradientError",
    "Graph",
    "GraphError",
    "InfeasibleError",
    "InputError",
    "LabelWarning",
    "Machine",
    "Monoid",
    "Objective",
    "Plan",
    "PlanError",
    "Redistribution",
    "RunError",
    "SimulatedRun",
    "TextError",
    "Vertex",
    "__version__",
    "compile",
    "cost",
    "einsum",
    "evaluate",
    "extend",
    "from_jax",
    "from_torch",
    "grad",
    "jax_inputs",
    "load",
    "models",
    "monoid",
    "parse",
    "plan",
    "plan_together",
    "redistribution",
    "rewrite",
    "run",
    "simulate",
    "solve",
    "torch_weights",
]

_LATER = {
    "Cost": "planner.costs.cost",
    "EinSum": "lang.einsum",
    "Executable": "engines.executable",
    "Graph": "graph.graph",
    "Machine": "planner.costs.machine",
    "Monoid": "lang.monoid",
    "Objective": "planner.costs.price",
    "Plan": "planner.plan",
    "Redistribution": "frontends.redistribution",
    "SimulatedRun": "tra.simulation.simulate",
    "Vertex": "graph.vertex",
    "compile": "api.compile",
    "cost": "planner.make",
    "einsum": "api.einsum",
    "evaluate": "graph.evaluate",
    "extend": "graph.text.elaborate",
    "from_jax": "frontends.jax.importing",
    "from_torch": "frontends.torch.importing",
    "grad": "graph.grad",
    "jax_inputs": "frontends.jax.importing",
    "load": "graph.text.elaborate",
    "models": "models",
    "monoid": "lang.monoid",
    "parse": "graph.text.elaborate",
    "plan": "planner.make",
    "plan_together": "api.compile",
    "redistribution": "frontends.redistribution",
    "rewrite": "graph.rewrites.rewrite",
    "run": "api.compile",
    "simulate": "api.compile",
    "solve": "solve",
    "torch_weights": "frontends.torch.importing",
}


def __getattr__(name: str) -> Any:
    """Load what a name stands for at its first use: nobody waits for what they do not use."""
    if name not in _LATER:
        raise AttributeError(f"module 'eindecomp' has no attribute {name!r}")
    try:
        module = import_module(f"eindecomp.{_LATER[name]}")
    except ModuleNotFoundError as error:
        if error.name not in EXTRAS:
            raise
        return partial(_refuse, error.name)
    attribute = module if name in ("models", "solve") else getattr(module, name)
    globals()[name] = attribute  # found at once from now on
    return attribute


def _refuse(package: str, *_args: Any, **_kwargs: Any) -> Any:
    """Stand for a function whose framework is not installed: all names are there, it says why."""
    raise not_installed(package)


def __dir__() -> list[str]:
    """The public names, those that are loaded later among them, for whoever looks or completes."""
    special = (name for name in globals() if name.startswith("__"))
    return sorted({*special, *__all__})
