"""`ed.from_jax`: a JAX function as a graph, read from its jaxpr."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax.extend import source_info_util
from jax.extend.core import Literal

from eindecomp.errors import EinDecompError, GraphError, suggest
from eindecomp.frontends.jax.arguments import Arguments, arguments_of, is_key, output_names
from eindecomp.frontends.jax.primitives import (  # noqa: F401 - which registers them
    contractions,  # pyright: ignore[reportUnusedImport]
    control,  # pyright: ignore[reportUnusedImport]
    elementwise,  # pyright: ignore[reportUnusedImport]
    indexing,  # pyright: ignore[reportUnusedImport]
    shapes,  # pyright: ignore[reportUnusedImport]
)
from eindecomp.frontends.jax.registry import CONTROL, ELEMENTWISE, RULES, Equation, inner_jaxpr
from eindecomp.frontends.record import View
from eindecomp.frontends.trace import Trace
from eindecomp.lang.names import KEYWORDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

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
    equations: Mapping[Way, EquationViews]
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
        graph,
        arguments,
        jaxpr,
        jax.tree.structure(tree),
        tuple(names),
        reader.constants,
        reader.made,
        reader.trace.final_names,
    )


Way = tuple[int, ...]
"""The way to an equation: in turns which call of a jaxpr, and a place in it."""

_OWN = str(Path(jax.__file__).parent)
_RANDOM = ("random_", "rng_", "threefry2x32")


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """An array whose values are known when the function is imported, and not all the same."""

    array: Any

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return tuple(self.array.shape)


@dataclass(frozen=True, slots=True)
class EquationViews:
    """An equation that was read: its operands and its results."""

    operands: tuple[View, ...]
    results: tuple[View, ...]


@dataclass(slots=True)
class Reader:
    """Adds to a trace what a jaxpr computes."""

    trace: Trace = field(default_factory=Trace)
    constants: dict[str, Any] = field(default_factory=dict[str, Any])
    """The arrays that the function brings with it, by the names of the inputs they become."""
    made: dict[Way, EquationViews] = field(default_factory=dict[Way, "EquationViews"])
    """What every equation that is not itself a jaxpr reads and makes, by the way to it."""
    pieces: dict[View, tuple[int, tuple[View, ...]]] = field(
        default_factory=dict[View, tuple[int, tuple[View, ...]]]
    )
    """What arrays were concatenated from, and along which dimension."""
    _path: list[int] = field(default_factory=list[int])
    _calls: dict[Way, int] = field(default_factory=dict[Way, int])
    _views: dict[int, tuple[Any, View]] = field(default_factory=dict[int, tuple[Any, View]])
    _outer: tuple[str, str] | None = None
    """Where a function of JAX's own is used, while that is read."""
    _places: dict[int, tuple[str, str]] = field(default_factory=dict[int, tuple[str, str]])

    def inline(self, jaxpr: Any, arrays: Sequence[View | Known]) -> list[View]:
        """The results of a jaxpr, closed or not."""
        return [self._view(value) for value in self.read(jaxpr, arrays)]

    def read(self, jaxpr: Any, arrays: Sequence[View | Known]) -> list[View | Known]:
        """The results of a jaxpr, those as values that are known."""
        closed = getattr(jaxpr, "jaxpr", jaxpr)
        known: dict[Any, View | Known] = {}
        for var, value in zip(closed.constvars, getattr(jaxpr, "consts", ()), strict=True):
            known[var] = known_or_number(value)
        known.update(zip(closed.invars, arrays, strict=True))

        def value_of(atom: Any) -> View | Known:
            return _literal(atom) if isinstance(atom, Literal) else known[atom]

        self._enter()
        for place, eqn in enumerate(closed.eqns):
            self._path[-1] = place
            results = self._results(eqn, [value_of(atom) for atom in eqn.invars])
            known.update(zip(eqn.outvars, results, strict=True))
        self._leave()
        return [value_of(atom) for atom in closed.outvars]

    def _enter(self) -> None:
        """Step into a jaxpr: the way to an equation says which call it is in, and its place."""
        way = tuple(self._path)
        self._calls[way] = self._calls.get(way, -1) + 1
        self._path += [self._calls[way], 0]

    def _leave(self) -> None:
        del self._path[-2:]

    def _results(self, eqn: Any, values: list[View | Known]) -> Sequence[View | Known]:
        """What an equation yields."""
        name = eqn.primitive.name
        if _is_known(eqn, values):
            return _worked_out(eqn, values)
        inner = inner_jaxpr(eqn)
        if inner is not None:
            return self._read_inside(eqn, inner, values)
        place, stem = self._place_of(eqn)
        rule = RULES.get(name)
        if rule is None:
            raise GraphError(_unknown(name, place))
        self.trace.begin(stem)
        results = tuple(var.aval for var in eqn.outvars)
        equation = Equation(name, eqn.params, results, place, self.trace, self.inline, self.pieces)
        operands = tuple(map(self._view, values))
        try:
            made = rule(equation, *operands)
        except EinDecompError as error:
            if place in str(error):
                raise
            raise GraphError(f"{name} at {place}: {error}") from error
        found = (made,) if isinstance(made, View) else tuple(made)
        self.made[tuple(self._path)] = EquationViews(operands, found)
        return found

    def _view(self, value: View | Known) -> View:
        """An array that is known as an input of its own."""
        if isinstance(value, View):
            return value
        found = self._views.get(id(value))
        if found is None:
            name = f"const_{len(self.constants)}"
            self.constants[name] = np.asarray(value.array)
            view = self.trace.input(name, value.shape, value.array.dtype)
            found = self._views[id(value)] = (value, view)
        return found[1]

    def _place_of(self, eqn: Any) -> tuple[str, str]:
        """Where an equation comes from in the user's source, and what to call its results."""
        place, word = self._outer or self._names_of(eqn)
        stem = ".".join(filter(None, (word, eqn.primitive.name.replace("-", "_"))))
        return place, f"{stem}_" if stem in KEYWORDS else stem

    def _names_of(self, eqn: Any) -> tuple[str, str]:
        """Where an equation comes from, and the scope or the function it is in."""
        found = self._places.get(id(eqn))
        if found is None:
            place = source_info_util.summarize(eqn.source_info) or "an unknown place"
            scope = str(eqn.source_info.name_stack).split("/")[-1]
            function = re.search(r"\((?:\S*\.)?(\w+)\)$", place)
            word = scope if scope.isidentifier() else function.group(1) if function else ""
            found = self._places[id(eqn)] = (place, word)
        return found

    def _read_inside(self, eqn: Any, inner: Any, values: list[View | Known]) -> list[View | Known]:
        """The results of a jaxpr that an equation calls.

        One of JAX's own functions is traced once for all its uses: its equations come from where
        it is used.
        """
        own = _own_source(inner)
        before, self._outer = self._outer, self._outer or (self._names_of(eqn) if own else None)
        results = self.read(inner, values)
        self._outer = before
        return results


def _literal(atom: Any) -> View | Known:
    """A literal, which may be a number of Python, in the type that it stands for."""
    return known_or_number(np.asarray(atom.val, atom.aval.dtype))


def _own_source(jaxpr: Any) -> bool:
    """Whether a jaxpr is that of a function of JAX's own."""
    info = getattr(jaxpr, "jaxpr", jaxpr).debug_info
    return str(info.func_filename or "").startswith(_OWN)


def known_or_number(value: Any) -> View | Known:
    """A value as one number repeated, or as it is where its elements differ."""
    if is_key(value.dtype):
        return Known(value)
    array = np.asarray(value)
    if array.size and (array.size == 1 or (array == array.flat[0]).all()):
        return Trace().number(array.flat[0].item(), array.dtype, array.shape)
    return Known(value)


def _is_known(eqn: Any, values: Sequence[View | Known]) -> bool:
    """Whether an equation is worked out now: of numbers, or of known arrays that do not grow."""
    name = eqn.primitive.name
    if not values or inner_jaxpr(eqn) is not None or name in CONTROL:
        return False
    if any(isinstance(value, View) and value.number is None for value in values):
        return False
    if name in ELEMENTWISE or name not in RULES:
        return True
    after = sum(prod(var.aval.shape) for var in eqn.outvars)
    before = sum(prod(v.shape) for v in values if isinstance(v, Known))
    return after <= max(before, 1)


def _worked_out(eqn: Any, values: Sequence[View | Known]) -> list[View | Known]:
    """The results of an equation of known values, as JAX computes them."""
    numbers = [v for v in values if isinstance(v, View)]
    by_element = len(numbers) == len(values) and eqn.primitive.name in ELEMENTWISE
    arrays = [
        v.array
        if isinstance(v, Known)
        else jax.numpy.asarray(np.full(() if by_element else v.shape, v.number, v.dtype))
        for v in values
    ]
    with jax.ensure_compile_time_eval():
        made = eqn.primitive.bind(*arrays, **eqn.params)
    results: Iterable[Any] = made if eqn.primitive.multiple_results else [made]
    found = [known_or_number(result) for result in results]
    if not by_element:
        return found
    return [
        Trace().number(view.number, view.dtype, var.aval.shape)
        for view, var in zip(found, eqn.outvars, strict=True)
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
