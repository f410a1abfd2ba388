"""Random programs on arrays, traced, against the same in NumPy."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import eindecomp as ed
from eindecomp.frontends.join import Indexed
from eindecomp.frontends.trace import Trace


class Both:
    """A trace and NumPy side by side."""

    def __init__(self, draw):
        self.draw, self.trace, self.inputs = draw, Trace(), {}
        self.arrays = []
        for name in ("x", "y", "w"):
            shape = draw(st.sampled_from([(2, 6), (1, 4), (2, 1, 6), (4, 3), (12,), (2, 3, 2), ()]))
            value = np.arange(prod(shape)).reshape(shape).astype("float32") % 7 - 2
            self.inputs[name] = value
            self.arrays.append((self.trace.input(name, shape, "float32"), value))

    def step(self):
        view, value = self.draw(st.sampled_from(self.arrays))
        kinds = ["reshape", "transpose", "unsqueeze", "expand", "reduce", "map", "fill", "number"]
        if value.ndim:
            kinds += ["slice", "concat", "index", "take", "backwards"]
        if 1 in value.shape:
            kinds += ["squeeze"]
        made = getattr(self, self.draw(st.sampled_from(kinds)))(view, value)
        assert made[0].shape == made[1].shape
        if made[1].size <= 200:
            self.arrays.append(made)

    def reshape(self, view, value):
        sizes = [n for n in range(1, value.size + 1) if value.size % n == 0]
        first = self.draw(st.sampled_from(sizes))
        second = self.draw(st.sampled_from([n for n in sizes if (value.size // first) % n == 0]))
        shape = (first, second, value.size // first // second)
        return self.trace.reshape(view, shape), value.reshape(shape)

    def transpose(self, view, value):
        order = self.draw(st.permutations(range(value.ndim)))
        return self.trace.transpose(view, order), value.transpose(order)

    def unsqueeze(self, view, value):
        place = self.draw(st.integers(0, value.ndim))
        return self.trace.unsqueeze(view, place), np.expand_dims(value, place)

    def squeeze(self, view, value):
        places = [k for k, n in enumerate(value.shape) if n == 1]
        return self.trace.squeeze(view, places), value.squeeze(tuple(places))

    def expand(self, view, value):
        shape = (2, *(3 if n == 1 else n for n in value.shape))
        return self.trace.expand(view, shape), np.broadcast_to(value, shape)

    def reduce(self, view, value):
        axes = [k for k in range(value.ndim) if self.draw(st.booleans())]
        agg, keep = self.draw(st.sampled_from(["sum", "max"])), self.draw(st.booleans())
        found = getattr(np, agg)(value, axis=tuple(axes), keepdims=keep) if axes else value
        return self.trace.reduce(view, axes, agg, keep=keep), np.asarray(found)

    def map(self, view, value):
        others = [(v, a) for v, a in self.arrays if _broadcasts(a.shape, value.shape)]
        other, array = self.draw(st.sampled_from(others))
        return self.trace.map("x * 2 - y", view, other), value * 2 - array

    def fill(self, _view, _value):
        size = self.draw(st.sampled_from([1, 2, 6]))
        rows = self.trace.unsqueeze(self.trace.iota(size, "int32", 1, 2), 1)
        made = self.trace.map("x < y", rows, self.trace.iota(3, "int32"), dtype="float32")
        return made, (np.arange(1, 2 * size + 1, 2)[:, None] < np.arange(3)).astype("float32")

    def number(self, _view, _value):
        shape = self.draw(st.sampled_from([(), (3, 1), (2, 6)]))
        return self.trace.number(1.5, "float32", shape), np.full(shape, 1.5, "float32")

    def slice(self, view, value):
        place = self.draw(st.integers(0, value.ndim - 1))
        stop = self.draw(st.integers(1, value.shape[place]))
        start = self.draw(st.integers(0, stop - 1))
        at = (slice(None),) * place + (slice(start, stop),)
        return self.trace.slice(view, place, start, stop), value[at]

    def _along(self, value):
        place = self.draw(st.integers(0, value.ndim - 1))
        return place, value.shape[place]

    def backwards(self, view, value):
        place, size = self._along(value)
        at = (slice(None),) * place + (slice(None, None, -2),)
        return self.trace.slice(view, place, size - 1, -1, -2), value[at]

    def index(self, view, value):
        place, size = self._along(value)
        at = self.draw(st.integers(0, size - 1))
        return self.trace.index(view, place, at), value.take(at, place)

    def concat(self, view, value):
        place, _ = self._along(value)
        return self.trace.concat([view, view], place), np.concatenate([value, value], place)

    def take(self, view, value):
        place, size = self._along(value)
        index = self.trace.map(
            "x % y", self.trace.iota(5, "int64", 3), self.trace.number(size, "int64")
        )
        return self.trace.take(view, place, index), value.take((np.arange(5) + 3) % size, place)


def _broadcasts(first, second):
    pairs = zip(reversed(first), reversed(second), strict=False)
    return all(a == b or 1 in (a, b) for a, b in pairs)


@given(st.data())
def test_a_traced_program_computes_what_numpy_does(data):
    both = Both(data.draw)
    for _ in range(data.draw(st.integers(1, 7))):
        both.step()
    outputs = {f"out{k}": view for k, (view, _) in enumerate(both.arrays[3:])}
    if not outputs:
        return
    graph = both.trace.finish(outputs, keep=both.inputs)
    assert ed.parse(str(graph)) == graph
    found = ed.evaluate(graph, both.inputs)
    for k, (_, value) in enumerate(both.arrays[3:]):
        np.testing.assert_allclose(found[f"out{k}"], value, rtol=1e-5)


def test_grouped_queries_split_the_queries_and_repeat_no_key():
    trace = Trace()
    q, k = trace.input("q", (2, 5, 24), "float32"), trace.input("k", (2, 5, 8), "float32")
    q = trace.reshape(q, (2, 5, 6, 4))
    k = trace.unsqueeze(trace.reshape(k, (2, 5, 2, 4)), 3)
    k = trace.reshape(trace.expand(k, (2, 5, 2, 3, 4)), (2, 5, 6, 4))
    scores = trace.einsum([Indexed(q, (0, 1, 2, 3)), Indexed(k, (0, 4, 2, 3))], (0, 2, 1, 4))
    assert scores.shape == (2, 6, 5, 5)
    graph = trace.finish({"scores": scores})
    product = next(v for v in graph.vertices.values() if len(v.inputs) == 2)
    assert product.shape == (2, 2, 3, 5, 5)
    x = {n: np.random.default_rng(0).normal(size=graph[n].shape).astype("float32") for n in "qk"}
    repeated = x["k"].reshape(2, 5, 2, 4).repeat(3, axis=2)
    expected = np.einsum("bshd,bthd->bhst", x["q"].reshape(2, 5, 6, 4), repeated)
    np.testing.assert_allclose(ed.evaluate(graph, x)["scores"], expected, rtol=1e-4)


def test_labels_are_named_from_their_use():
    trace = Trace()
    x, w = trace.input("x", (2, 5, 8), "float32"), trace.input("model.0.w", (16, 8), "float32")
    trace.vote(x, ("b", "s", "a"))
    y = trace.einsum([Indexed(x, (0, 1, 2)), Indexed(w, (3, 2))], (0, 1, 3))
    trace.vote(y, (None, None, "f"), 1)
    z = trace.einsum([Indexed(y, (0, 1, 2)), Indexed(y, (0, 3, 2))], (0, 1, 3))
    graph = trace.finish({"z": z})
    assert graph["model.0.w"].labels == ("f", "a")
    assert graph["z"].labels == ("b", "s", "t")


def test_shapes_that_do_not_align_are_named():
    trace = Trace()
    x, y = trace.input("x", (2, 3), "float32"), trace.input("y", (2, 4), "float32")
    with pytest.raises(ed.GraphError, match=r"\(2, 3\), \(2, 4\) do not align"):
        trace.map("x + y", x, y)
