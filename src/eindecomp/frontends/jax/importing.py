"""`ed.from_jax`: a JAX function as a graph, read from its jaxpr."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax.extend import source_info_util

from eindecomp.errors import GraphError
from eindecomp.frontends.jax.arguments import Arguments, arguments_of, is_key, output_names
from eindecomp.frontends.jax.reader import Reader

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from eindecomp.frontends.jax.reader import Read, Way
    from eindecomp.graph.graph import Graph


source_info_util.register_exclusion(__file__)  # it calls the user's function, but is not theirs


def from_jax(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Graph:
    """The graph that computes what a JAX function does, for arguments of these shapes.

    Arrays in the arguments become inputs under the names of the parameters and keys:
    `params.layers.0.wq`. All other leaves, Python's numbers among them, are fixed. Results are
    called `out`, `out.0`, `out.logits`. Arrays that the function closes over become inputs
    `const_0`, …, whose values `jax_inputs` gives. An index out of range is an error when the graph
    runs, where JAX may fill or drop.

    Args:
        fn: The function, such as `lambda x, w: jnp.tanh(x @ w)`.
        *args: Its arguments: arrays, `jax.ShapeDtypeStruct`s, and pytrees of them, such as `x`.
        **kwargs: Its keyword arguments, such as `mask=mask`.

    Raises:
        GraphError: It does what no graph can, such as drawing random numbers.

    Examples:
        >>> import jax, jax.numpy as jnp, eindecomp as ed
        >>> shape = jax.ShapeDtypeStruct((4, 4), "float32")
        >>> graph = ed.from_jax(lambda x, w: jnp.tanh(x @ w), shape, shape)
        >>> [vertex.name for vertex in (*graph.inputs, *graph.outputs)]
        ['x', 'w', 'out']
    """
    return read_function(fn, args, kwargs).graph


def jax_inputs(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> dict[str, Any]:
    """The arrays in the arguments of a function, by the names that its graph has for them.

    Args:
        fn: The function that was imported, such as `model`.
        *args: Its arguments, such as `params, x`.
        **kwargs: Its keyword arguments, such as `mask=mask`.

    Raises:
        GraphError: An argument is only a shape.

    Examples:
        >>> import jax.numpy as jnp, eindecomp as ed
        >>> sorted(ed.jax_inputs(lambda x, w: jnp.tanh(x @ w), jnp.ones((4, 4)), jnp.eye(4)))
        ['w', 'x']
    """
    read = read_function(fn, args, kwargs)
    pairs = zip(read.arguments.names, read.arguments.arrays, strict=True)
    arrays = {**dict(pairs), **read.constants}
    for name, array in arrays.items():
        if isinstance(array, jax.ShapeDtypeStruct):
            raise GraphError(f"argument {name} is only a shape, {array}: give an array")
    return {vertex.name: np.asarray(arrays[vertex.name]) for vertex in read.graph.inputs}


@dataclass(frozen=True, slots=True)
class ReadFunction:
    """A function that was imported: its graph, and how the graph's tensors are found in it."""

    graph: Graph
    arguments: Arguments
    jaxpr: Any
    tree: Any
    """The pytree of its results."""
    outputs: tuple[str, ...]
    constants: Mapping[str, Any]
    equations: Mapping[Way, Read]
    """What each equation reads and makes, by the way to it."""
    names: Mapping[str, str]
    """What the vertices of those are called in the graph."""


def read_function(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> ReadFunction:
    """Import a function, and keep what is needed to find the graph's tensors in its jaxpr."""
    arguments = arguments_of(fn, args, kwargs)
    for name, array in zip(arguments.names, arguments.arrays, strict=True):
        if is_key(array.dtype):
            raise GraphError(
                f"argument {name} is a random key, and draws of random numbers are no part of a "
                f"graph; draw them outside and pass them, or fix the key inside the function"
            )
    shapes = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in arguments.arrays]

    def called(*arrays: Any) -> Any:
        return arguments.call(fn, arrays)

    jaxpr, tree = jax.make_jaxpr(called, return_shape=True)(*shapes)
    reader = Reader()
    inputs = [
        reader.trace.input(name, var.aval.shape, var.aval.dtype)
        for name, var in zip(arguments.names, jaxpr.jaxpr.invars, strict=True)
    ]
    names = output_names(tree, arguments.names)
    results = reader.inline(jaxpr, inputs)
    if not results:
        raise GraphError(f"{fn} returns no array")
    graph = reader.trace.finish(dict(zip(names, results, strict=True)), keep=arguments.names)
    return ReadFunction(
        graph,
        arguments,
        jaxpr,
        jax.tree.structure(tree),
        tuple(names),
        reader.constants,
        reader.made,
        reader.trace.names,
    )
