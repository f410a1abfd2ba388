"""Random expressions, EinSums and graphs for property tests."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

import eindecomp as ed
from eindecomp.graph.ops import Fill, Input
from eindecomp.lang.monoid import BUILTIN
from eindecomp.lang.scalar import FUNCTIONS, Arg, Call, Const, Expr, Scalar

SIZES = {"a": 2, "b": 3, "c": 1, "d": 4, "long_label": 2}
SMOOTH = ("add", "sub", "mul", "sin", "cos", "tanh", "sigmoid", "erf", "silu", "gelu", "neg")


def numbers() -> st.SearchStrategy[Const]:
    special = st.sampled_from(
        [0, 1, -1, 2, 0.5, -2.5, 1e-30, float("inf"), float("nan"), True, False]
    )
    return st.one_of(special, st.integers(-5, 5), st.floats(-3, 3, allow_nan=False)).map(Const)


def exprs(
    arity: int, names: tuple[str, ...] | None = None, scalars: tuple[str, ...] = ()
) -> st.SearchStrategy[Expr]:
    """Expressions over `arity` inputs from the given functions (all real ones unless given)."""
    allowed = names or tuple(name for name in FUNCTIONS if not name.startswith("complex"))
    leaves: list[st.SearchStrategy[Expr]] = [numbers() if names is None else st.just(Const(0.5))]
    if arity:
        leaves.append(st.integers(0, arity - 1).map(Arg))
    if scalars:
        leaves.append(st.sampled_from(scalars).map(Scalar))

    def grow(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
        return st.sampled_from(allowed).flatmap(
            lambda op: st.tuples(*[inner] * FUNCTIONS[op].arity).map(lambda args: Call(op, args))
        )

    return st.recursive(st.one_of(leaves), grow, max_leaves=8)


def labels(max_size: int = 3, *, unique: bool = True) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(st.sampled_from(sorted(SIZES)), max_size=max_size, unique=unique).map(tuple)


@st.composite
def graphs(draw: st.DrawFn, *, smooth: bool = False, dtype: str = "float64") -> ed.Graph:
    """Graphs of every kind of vertex; `smooth` ones can be differentiated numerically."""
    g = ed.Graph()
    g.scalar("lr")
    for k in range(draw(st.integers(1, 3))):
        own = draw(labels().filter(bool))
        g.input(f"X{k}", {label: SIZES[label] for label in own}, dtype)
    kinds = [_einsum, _einsum, _einsum, _fill, _slice, _concat, _reshape, _gather, _scatter]
    for _ in range(draw(st.integers(1, 5))):
        draw(st.sampled_from(kinds))(draw, g, smooth)
    # An input may be an output too, but what was made is more telling.
    made = [v for v in g.vertices.values() if not isinstance(v.op, Input)] or list(g.inputs)
    chosen = draw(
        st.lists(st.sampled_from(made), min_size=1, max_size=3, unique_by=lambda v: v.name)
    )
    g.output(*chosen)
    _tie(draw, g)
    return g


def _tie(draw: st.DrawFn, g: ed.Graph) -> None:
    """Tie an input to an output, if there is one that can become it."""
    pairs = [
        (given.name, made.name)
        for given in g.inputs
        for made in g.outputs
        if (given.shape, given.dtype) == (made.shape, made.dtype)
        and not isinstance(made.op, Input | Fill)
    ]
    if pairs and draw(st.booleans()):
        g.tie(*draw(st.sampled_from(pairs)))


def _pick(draw: st.DrawFn, g: ed.Graph) -> ed.Vertex:
    tensors = [v for v in g.vertices.values() if v.dtype.kind in "fb"]
    return draw(st.sampled_from(tensors))


def _name_dimensions(draw: st.DrawFn, tensor: ed.Vertex, taken: dict[str, int]) -> tuple[str, ...]:
    """Labels for a tensor's dimensions that agree with the sizes of those taken so far."""
    own: list[str] = []
    for size in tensor.shape:
        fits = [label for label, known in taken.items() if known == size]
        fits += [f"n{len(taken)}"]
        label = draw(st.sampled_from(fits))
        taken[label] = size
        own.append(label)
    return tuple(own)


def _einsum(draw: st.DrawFn, g: ed.Graph, smooth: bool) -> None:
    sizes: dict[str, int] = {}
    count = draw(st.integers(1, 3))
    tensors = [_pick(draw, g) for _ in range(count)]
    operands = [(t.name, _name_dimensions(draw, t, sizes)) for t in tensors]
    if len(sizes) > 5:
        return
    output = (
        draw(st.lists(st.sampled_from(sorted(sizes)), unique=True, max_size=3)) if sizes else []
    )
    if draw(st.booleans()):
        output.insert(0, "wide")
        sizes["wide"] = 2
    names = SMOOTH if smooth else ("max", "abs", "where", "gt", *SMOOTH)
    join = draw(exprs(count, names, ("lr",)))
    aggs = ["sum", "sum", "sum"] if smooth else sorted(BUILTIN)
    g.add_einsum(tuple(output), operands, join, draw(st.sampled_from(aggs)), g.fresh("E"), sizes)


def _fill(draw: st.DrawFn, g: ed.Graph, smooth: bool) -> None:
    own = draw(labels(2))
    value = draw(st.sampled_from(["1.5", "lr", *(f"float64({label}) / 3" for label in own)]))
    g.fill({label: SIZES[label] for label in own}, value, g.fresh("F"))


def _slice(draw: st.DrawFn, g: ed.Graph, smooth: bool) -> None:
    tensor = _pick(draw, g)
    ranges: dict[str, tuple[int, int]] = {}
    for k, size in enumerate(tensor.shape):
        start = draw(st.integers(0, size - 1))
        ranges[f"s{k}"] = (start, draw(st.integers(start + 1, size)))
    names = " ".join(ranges)
    g.slice(f" {names} ", tensor, ranges, g.fresh("S"))


def _concat(draw: st.DrawFn, g: ed.Graph, smooth: bool) -> None:
    tensor = _pick(draw, g)
    if not tensor.shape or tensor.dtype == bool:
        return
    names = [f"c{k}" for k in range(len(tensor.shape))]
    along = draw(st.sampled_from(names))
    g.concat(" ".join(names), tensor, tensor, along=along, name=g.fresh("C"))


def _reshape(draw: st.DrawFn, g: ed.Graph, smooth: bool) -> None:
    tensor = _pick(draw, g)
    names = [f"r{k}" for k in range(len(tensor.shape))]
    order = draw(st.permutations(names))
    cut = draw(st.integers(0, len(order)))
    merged = f"({' '.join(order[cut:])})" if order[cut:] else ""
    g.reshape(f"{' '.join(names)} -> {' '.join(order[:cut])} {merged}", tensor, None, g.fresh("R"))


def _index(draw: st.DrawFn, g: ed.Graph, size: int, bound: int) -> ed.Vertex:
    step = draw(st.integers(1, bound))
    return g.fill({"n": size}, f"where(n * {step} < {bound}, n * {step}, 0)", g.fresh("I"))


def _gather(draw: st.DrawFn, g: ed.Graph, smooth: bool) -> None:
    tensor = _pick(draw, g)
    if not tensor.shape:
        return
    names = [f"g{k}" for k in range(len(tensor.shape))]
    axis = draw(st.integers(0, len(names) - 1))
    index = _index(draw, g, draw(st.integers(1, 4)), tensor.shape[axis])
    rest = [name for k, name in enumerate(names) if k != axis]
    output = draw(st.permutations([*rest, "at"]))
    g.gather(f"{' '.join(names)}, at -> {' '.join(output)}", tensor, index, g.fresh("G"))


def _scatter(draw: st.DrawFn, g: ed.Graph, smooth: bool) -> None:
    tensor = _pick(draw, g)
    if not tensor.shape or tensor.dtype == bool:
        return
    names = [f"t{k}" for k in range(len(tensor.shape))]
    at = draw(st.sampled_from(names))
    bound = draw(st.integers(1, 4))
    index = _index(draw, g, tensor.shape[names.index(at)], bound)
    output = draw(st.permutations([*(name for name in names if name != at), "row"]))
    spec = f"{' '.join(names)}, {at} -> {' '.join(output)}"
    g.scatter_add(spec, tensor, index, bound, g.fresh("A"))


def arrays(graph: ed.Graph, seed: int = 0) -> dict[str, Any]:
    """Random values for the inputs and scalars of a graph."""
    rng = np.random.default_rng(seed)
    found: dict[str, Any] = {}
    for vertex in graph.inputs:
        if vertex.dtype.kind in "iu":
            found[vertex.name] = rng.integers(0, 3, vertex.shape).astype(vertex.dtype)
        elif vertex.dtype.kind == "b":
            found[vertex.name] = rng.random(vertex.shape) > 0.5
        else:
            values = rng.standard_normal(vertex.shape)
            if vertex.dtype.kind == "c":
                values = values + 1j * rng.standard_normal(vertex.shape)
            found[vertex.name] = values.astype(vertex.dtype)
    return found | dict.fromkeys(graph.scalars, 0.75)
