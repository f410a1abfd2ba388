"""Regions can be traced without knowing any number, and what was traced computes the same."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from random_graphs import random_graph
from test_ops import OPS, SIZES, parse
from test_region_keys import codes_of, made_up

from eindecomp.engines.torch.ready_region import RegionCall, carry_out, traced
from strategies import graphs


def check(code, into):
    arrays, scalars = made_up(code)
    wanted = code(arrays, scalars)
    targets = [torch.full_like(array, 7) for array in wanted] if into else []
    call = RegionCall(arrays, scalars, code.joined(arrays), targets)
    function = traced(code, call)
    made = function(*call.all)
    for one, other in zip(targets or made, wanted, strict=True):
        assert one.dtype == other.dtype
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5, equal_nan=True)
    eager = carry_out(code, RegionCall(arrays, scalars, code.joined(arrays), []))
    for one, other in zip(eager, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5, equal_nan=True)


@settings(max_examples=settings.default.max_examples // 2)
@given(
    graph=st.one_of(
        graphs(), st.integers(0, 2**32).map(lambda seed: random_graph(seed, tree=False))
    ),
    devices=st.sampled_from([1, 2]),
    into=st.booleans(),
)
def test_random_regions(graph, devices, into):
    for code in codes_of(graph, devices):
        check(code, into)


@pytest.mark.parametrize("op", OPS)
def test_each_kind_of_vertex(op):
    for code in codes_of(parse(op, SIZES["uneven"]), 2):
        check(code, into=False)
