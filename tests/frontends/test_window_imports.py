"""Windows of windows read what reading one after the other reads."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import eindecomp as ed
from eindecomp.frontends.trace import Trace
from eindecomp.frontends.windows import Along
from eindecomp.lang.index import CLAMP


@st.composite
def alongs(draw):
    """Places along a dimension, most of them near its start."""
    count = draw(st.integers(1, 2))
    sizes = tuple(draw(st.integers(1, 4)) for _ in range(count))
    times = tuple(draw(st.sampled_from([1, 1, 2, -1, 0])) for _ in range(count))
    outside = draw(st.sampled_from([0, 0, 7, CLAMP]))
    divisor = 1 if outside == CLAMP else draw(st.integers(1, 2))
    return Along(sizes, times, draw(st.integers(-2, 3)), divisor, outside)


def read(array, place, along):
    """What an array shows, one element after the other."""
    front = np.moveaxis(array, place, 0)
    made = np.full((*along.sizes, *front.shape[1:]), 0.0)
    for at in np.ndindex(along.sizes):
        number = along.offset + sum(n * k for n, k in zip(along.times, at, strict=True))
        index, rest = divmod(number, along.divisor)
        if along.outside == CLAMP:
            index = min(max(index, 0), len(front) - 1)
        made[at] = front[index] if not rest and 0 <= index < len(front) else along.outside
    return np.moveaxis(made, [*range(len(along.sizes))], [place + k for k in range(len(at))])


@given(st.lists(st.tuples(st.integers(0, 9), alongs()), min_size=1, max_size=4), st.booleans())
def test_windows_of_windows(steps, is_formula):
    trace = Trace()
    expected = np.arange(12.0).reshape(4, 3)
    given_ = trace.input("x", (4, 3), "float64")
    seen = trace.reshape(trace.iota(12, "float64"), (4, 3)) if is_formula else given_
    for k, along in steps[: 8 - len(steps)]:
        place = k % expected.ndim
        seen, expected = trace.seen(seen, {place: along}), read(expected, place, along)
    graph = trace.finish({"out": seen}, ["x"])
    x = np.arange(12.0).reshape(4, 3)
    for made in (graph, ed.rewrite(graph), ed.parse(str(ed.rewrite(graph)))):
        np.testing.assert_array_equal(ed.evaluate(made, {"x": x})["out"], expected)
