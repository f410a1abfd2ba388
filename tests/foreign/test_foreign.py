"""Other people's models and functions, on every engine, against what they compute themselves.

A handful runs by default; all of them with `EINDECOMP_ALL=1`.
"""

from __future__ import annotations

import importlib
import inspect

import jax
import numpy as np
import pytest
import torch
from jax_functions import FUNCTIONS
from torch.utils import _pytree
from torch_models import MODELS, made

import eindecomp as ed
from eindecomp.frontends.input_names import input_name

ENGINES = ("threads", "torch", "jax", "apart")
USUAL = {
    ("Qwen3", "threads"), ("Mixtral", "torch"), ("GNN", "jax"),
    ("nn.Transformer", "torch"), ("gradients", "jax"), ("experts", "threads"),
    ("segments", "jax"), ("hessian", "threads"),
}  # fmt: skip
"""The cases that run by default."""


def cases(table):
    for name, entry in table.items():
        for engine in ENGINES if not entry.refused else ENGINES[:1]:
            marks = [] if (name, engine) in USUAL else [pytest.mark.long]
            yield pytest.param(name, engine, marks=marks, id=f"{name}-{engine}")


def run(graph, inputs, engine):
    """What a plan for two devices computes."""
    result = ed.run(ed.plan(graph, 2, time_limit=1), inputs, engine=engine)
    return [np.asarray(result[vertex.name]) for vertex in graph.outputs]


def compare(found, expected):
    for array, wanted in zip(found, map(np.asarray, expected), strict=True):
        np.testing.assert_allclose(array, wanted, rtol=1e-3, atol=1e-4 * abs(wanted).max())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "engine"), [*cases(MODELS)])
def test_models_of_torch(name, engine):
    module, example = made(name)
    if reason := MODELS[name].refused:
        with pytest.raises(ed.GraphError, match=reason):
            ed.from_torch(module, example)
        return
    graph = ed.from_torch(module, example)
    if not isinstance(example, dict):
        example = dict(zip(inspect.signature(module.forward).parameters, example, strict=True))
    with torch.no_grad():
        expected = module(**example, **without_cache(module))
    expected = _pytree.tree_leaves({**expected} if hasattr(expected, "keys") else expected)
    inputs = {input_name(name): tensor for name, tensor in example.items()}
    compare(run(graph, ed.torch_weights(module, graph) | inputs, engine), expected)


def without_cache(module):
    return (
        {"use_cache": False} if "use_cache" in inspect.signature(module.forward).parameters else {}
    )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "engine"), [*cases(FUNCTIONS)])
def test_functions_of_jax(name, engine):
    function = FUNCTIONS[name]
    if function.library:
        importlib.import_module(function.library)
    fn, args = function.make()
    if function.refused:
        with pytest.raises(ed.GraphError, match=function.refused):
            ed.from_jax(fn, *args)
        return
    graph = ed.from_jax(fn, *args)
    expected = jax.tree.leaves(jax.jit(fn)(*args))
    compare(run(graph, ed.jax_inputs(fn, *args), engine), expected)
