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

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from eindecomp.errors import (
    EinDecompError,
    ExpressionError,
    GradientError,
    GraphError,
    InputError,
    TextError,
)
from eindecomp.graph.evaluate import evaluate
from eindecomp.graph.grad import grad
from eindecomp.graph.graph import Graph
from eindecomp.graph.rewrites.rewrite import rewrite
from eindecomp.graph.text.elaborate import extend, load, parse
from eindecomp.graph.vertex import Vertex
from eindecomp.lang.declare import monoid
from eindecomp.lang.einsum import EinSum
from eindecomp.lang.monoid import Monoid

if TYPE_CHECKING:
    from eindecomp import solve

__all__ = [
    "EinDecompError",
    "EinSum",
    "ExpressionError",
    "GradientError",
    "Graph",
    "GraphError",
    "InputError",
    "Monoid",
    "TextError",
    "Vertex",
    "evaluate",
    "extend",
    "grad",
    "load",
    "monoid",
    "parse",
    "rewrite",
    "solve",
]


def __getattr__(name: str) -> ModuleType:
    """Import `ed.solve` at its first use: numba takes longer to load than all the rest."""
    if name == "solve":
        return import_module("eindecomp.solve")
    raise AttributeError(f"module 'eindecomp' has no attribute {name!r}")
