"""`ed.from_jax`: a JAX function as a graph, read from its jaxpr."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.extend import source_info_util
from jax.extend.core import Literal

from eindecomp.errors import EinDecompError, GraphError, suggest
from eindecomp.frontends.draft import View
from eindecomp.frontends.jax.arguments import Arguments, Kwargs, arguments_of, is_key, output_names
from eindecomp.frontends.jax.primitives import contractions, control, elementwise, indexing  # noqa: F401  # pyright: ignore[reportUnusedImport] - this registers them
from eindecomp.frontends.jax.registry import CONTROL, ELEMENTWISE, RULES, Equation, inner_jaxpr
from eindecomp.frontends.trace import Trace
from eindecomp.graph.graph import Graph
from eindecomp.lang.names import KEYWORDS

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
    equations: Mapping[Way, EquationViews]
    """What each equation reads and makes, by the path to it."""
    names: Mapping[str, str]
    """The name in the graph of each vertex that they made."""


def read_function(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Kwargs) -> ReadFunction:
    """Import a function, and keep what is needed to find the graph's tensors in its jaxpr."""
    arguments = arguments_of(fn, args, kwargs)
    for name, array in zip(arguments.names, arguments.arrays, strict=True):
        if is_key(array.dtype):
            raise GraphError(
                f"argument {name} is a random key, and draws of random numbers are no part of a "
                f"graph; draw them outside and pass them, or fix the key inside the function"
            )
    like = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in arguments.arrays]

    def called(*arrays: Any) -> Any:
        return arguments.call(fn, arrays)

    jaxpr, tree = jax.make_jaxpr(called, return_shape=True)(*like)
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
        graph, arguments, jaxpr, jax.tree.structure(tree), tuple(names), reader.constants,
        reader.made, reader.trace.final_names,
    )  # fmt: skip


Way = tuple[int, ...]
"""The path to an equation: by turns, which call of a jaxpr and which place in it."""

_OWN = str(Path(jax.__file__).parent)
_RANDOM = ("random_", "rng_", "threefry2x32")


Value = Any
"""A `View`, or an array whose values are known at the import and not all the same."""


EquationViews = tuple[tuple[View, ...], tuple[View, ...]]
"""The operands and the results of an equation that was read."""


class Reader:
    """Adds to a trace what a jaxpr computes."""

    def __init__(self) -> None:
        self.trace = Trace()
        self.constants: dict[str, Any] = {}
        """The arrays that the function brings with it, by the names of the inputs they become."""
        self.made: dict[Way, EquationViews] = {}
        """What every equation that calls no jaxpr reads and makes, by the path to it."""
        self.pieces: dict[View, tuple[int, tuple[View, ...]]] = {}
        """What arrays were concatenated from, and along which dimension."""
        self._path: list[int] = []
        self._calls: dict[Way, int] = {}
        self._views: dict[int, tuple[Any, View]] = {}
        self._outer: tuple[str, str] | None = None
        """Where a function of JAX's own is used, while that is read."""

    def inline(self, jaxpr: Any, arrays: Sequence[Value]) -> list[View]:
        """The results of a jaxpr, closed or not."""
        return [self._view(value) for value in self.read(jaxpr, arrays)]

    def read(self, jaxpr: Any, arrays: Sequence[Value]) -> list[Value]:
        """The results of a jaxpr, those as values that are known."""
        way = tuple(self._path)
        self._calls[way] = self._calls.get(way, -1) + 1
        self._path += [self._calls[way], 0]
        results = walk_jaxpr(jaxpr, arrays, known_or_number, self._results)
        del self._path[-2:]
        return results

    def _results(self, place: int, eqn: Any, values: list[Value]) -> Sequence[Value]:
        """What an equation yields."""
        self._path[-1] = place
        name = eqn.primitive.name
        if _is_known(eqn, values):
            return _worked_out(eqn, values)
        inner = inner_jaxpr(eqn)
        if inner is not None:
            return self._read_inside(eqn, inner, values)
        source, word = self._outer or self._names_of(eqn)
        stem = ".".join(filter(None, (word, name.replace("-", "_"))))
        rule = RULES.get(name)
        if rule is None:
            raise GraphError(_unknown(name, source))
        self.trace.begin(f"{stem}_" if stem in KEYWORDS else stem)
        results = tuple(var.aval for var in eqn.outvars)
        equation = Equation(name, eqn.params, results, source, self.trace, self.inline, self.pieces)
        operands = tuple(map(self._view, values))
        try:
            made = rule(equation, *operands)
        except EinDecompError as error:
            if source in str(error):
                raise
            raise GraphError(f"{name} at {source}: {error}") from error
        views = (made,) if isinstance(made, View) else tuple(made)
        self.made[tuple(self._path)] = operands, views
        return views

    def _view(self, value: Value) -> View:
        """An array that is known as an input of its own."""
        if isinstance(value, View):
            return value
        pair = self._views.get(id(value))
        if pair is None:
            name = f"const_{len(self.constants)}"
            self.constants[name] = np.asarray(value)
            view = self.trace.input(name, value.shape, value.dtype)
            pair = self._views[id(value)] = (value, view)
        return pair[1]

    def _names_of(self, eqn: Any) -> tuple[str, str]:
        """Where an equation comes from, and the scope or the function it is in."""
        place = source_info_util.summarize(eqn.source_info) or "an unknown place"
        scope = str(eqn.source_info.name_stack).split("/")[-1]
        function = re.search(r"\((?:\S*\.)?(\w+)\)$", place)
        return place, scope if scope.isidentifier() else function.group(1) if function else ""

    def _read_inside(self, eqn: Any, inner: Any, values: list[Value]) -> list[Value]:
        """The results of a jaxpr that an equation calls.

        One of JAX's own functions is traced once for all its uses: its equations come from where
        it is used.
        """
        file = getattr(inner, "jaxpr", inner).debug_info.func_filename
        before = self._outer
        if before is None and str(file or "").startswith(_OWN):
            self._outer = self._names_of(eqn)
        results = self.read(inner, values)
        self._outer = before
        return results


def walk_jaxpr(
    jaxpr: Any,
    arrays: Sequence[Value],
    known: Callable[[Any], Value],
    call: Callable[[int, Any, list[Value]], Sequence[Value]],
) -> list[Value]:
    """The results of a jaxpr, closed or not, with `call` giving those of each equation.

    `known` makes a value of an array that the jaxpr holds.
    """
    closed = getattr(jaxpr, "jaxpr", jaxpr)
    constants = map(known, getattr(jaxpr, "consts", ()))
    values: dict[Any, Value] = dict(zip(closed.constvars, constants, strict=True))
    values.update(zip(closed.invars, arrays, strict=True))

    def value_of(atom: Any) -> Value:
        if not isinstance(atom, Literal):
            return values[atom]
        aval: Any = atom.aval  # whose type a number of Python takes
        return known(np.asarray(atom.val, aval.dtype))

    for place, eqn in enumerate(closed.eqns):
        results = call(place, eqn, [value_of(atom) for atom in eqn.invars])
        values.update(zip(eqn.outvars, results, strict=True))
    return [value_of(atom) for atom in closed.outvars]


def known_or_number(value: Any) -> Value:
    """A value as one number repeated, or as it is where its elements differ."""
    if is_key(value.dtype):
        return value
    array = np.asarray(value)
    if array.size and (array.size == 1 or (array == array.flat[0]).all()):
        return Trace().number(array.flat[0].item(), array.dtype, array.shape)
    return value


def _is_known(eqn: Any, values: Sequence[Value]) -> bool:
    """Whether an equation is worked out now: of numbers, or of known arrays that do not grow."""
    name = eqn.primitive.name
    if not values or inner_jaxpr(eqn) is not None or name in CONTROL:
        return False
    if any(isinstance(value, View) and value.number is None for value in values):
        return False
    if name in ELEMENTWISE or name not in RULES:
        return True
    after = sum(prod(var.aval.shape) for var in eqn.outvars)
    before = sum(prod(v.shape) for v in values if not isinstance(v, View))
    return after <= max(before, 1)


def _worked_out(eqn: Any, values: Sequence[Value]) -> list[Value]:
    """The results of an equation of known values, as JAX computes them."""
    by_element = eqn.primitive.name in ELEMENTWISE and all(isinstance(v, View) for v in values)
    arrays = [
        jax.numpy.asarray(np.full(() if by_element else v.shape, v.number, v.dtype))
        if isinstance(v, View)
        else v
        for v in values
    ]
    with jax.ensure_compile_time_eval():
        made = eqn.primitive.bind(*arrays, **eqn.params)
    results: Iterable[Any] = made if eqn.primitive.multiple_results else [made]
    known = [known_or_number(result) for result in results]
    if not by_element:
        return known
    return [
        Trace().number(view.number, view.dtype, var.aval.shape)
        for view, var in zip(known, eqn.outvars, strict=True)
        if isinstance(view, View) and view.number is not None
    ]


def _unknown(name: str, place: str) -> str:
    if name.startswith(_RANDOM):
        return (
            f"{name} at {place}: draws of random numbers are no part of a graph; draw them "
            f"outside and pass them as an argument, or fix the key inside the function"
        )
    return (
        f"the primitive {name!r} at {place} is unknown to the importer{suggest(name, RULES)}; "
        f"add it by a function under @eindecomp.frontends.jax.registry.primitive({name!r})"
    )
