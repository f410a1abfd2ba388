"""What compiled collectives move is counted right, and is what plans say, to the byte."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agreement import precise
from hypothesis import given
from hypothesis import strategies as st
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from random_graphs import random_graph

import eindecomp as ed
from eindecomp.engines.jax.hlo import bytes_by_vertex, count_collectives
from eindecomp.frontends.jax.shardings import compare
from eindecomp.models.llama import CONFIGS, prefill_graph
from eindecomp.tra.program.make import program_of

SIDE = 64
BYTES = SIDE * SIDE * 4
# What all 8 devices receive of a tile of 64 × 64 float32 on each, over an axis of 2 or 4 devices.
BY_HAND = {
    "all-gather": (lambda x, a: lax.all_gather(x, a, axis=0, tiled=True), lambda n: n - 1),
    "all-to-all": (lambda x, a: lax.all_to_all(x, a, 0, 1, tiled=True), lambda n: (n - 1) / n),
    "reduce-scatter": (
        lambda x, a: lax.psum_scatter(x, a, scatter_dimension=1, tiled=True),
        lambda n: (n - 1) / n,
    ),
    "all-reduce": (lax.psum, lambda n: 2 * (n - 1) / n),
    "collective-permute": (
        lambda x, a: lax.ppermute(x, a, [(0, 1), (1, 0)]),
        lambda n: 2 / n,
    ),
}


def compiled(function, mesh, shape):
    """A function of what each device has, compiled."""
    none, all_axes = PartitionSpec(), PartitionSpec(mesh.axis_names)
    mapped = jax.shard_map(function, mesh=mesh, in_specs=none, out_specs=all_axes, check_vma=False)
    given = jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, none))
    return jax.jit(mapped).lower(given).compile()


@pytest.fixture(scope="module")
def mesh():
    return Mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("two", "four"))


@pytest.mark.parametrize(("axis", "n"), [("two", 2), ("four", 4)])
@pytest.mark.parametrize("kind", BY_HAND)
def test_every_collective_is_counted(mesh, kind, axis, n):
    function, share = BY_HAND[kind]
    made = compiled(lambda x: function(x, axis), mesh, (SIDE, SIDE))
    found = count_collectives(made)
    assert [(each.kind, each.bytes) for each in found] == [(kind, 8 * share(n) * BYTES)]
    assert count_collectives(made.as_text()) == found


def test_a_collective_in_a_loop_is_counted_as_often_as_it_runs(mesh):
    def loop(x):
        return lax.fori_loop(0, 5, lambda _, y: lax.psum(jnp.sin(y), "two") + x, x)

    found = count_collectives(compiled(loop, mesh, (SIDE, SIDE)))
    assert [(each.bytes, each.times) for each in found] == [(5 * 8 * BYTES, 5)]


HEAD = "HloModule m, num_partitions=8\nENTRY %main (p: f32[8,4]) -> f32[32] {\n"
LINES = [
    ("%g = f32[32,4]{1,0} all-gather(%p), replica_groups=[2,4]<=[8], dimensions={0}", 2 * 3 * 512),
    (
        "%g = f32[16,4]{1,0:T(8,128)} all-gather(%p), replica_groups=[4,2]<=[2,4]T(1,0)",
        4 * 256,
    ),
    (
        "%g = (f32[8,4]{1,0}, f32[64,4]{1,0}) all-gather-start(%p), replica_groups={}",
        7 * 1024,
    ),
    ("%g = bf16[8,4]{1,0} all-reduce-start(%p), replica_groups={{0,1,2,3,4,5,6,7}}", 14 * 64),
    (
        "%g = (f32[8,4]{1,0}, s8[8]{0}) all-reduce(%p, %q), replica_groups={{0,1},{2,3}}",
        2 * 2 * (128 + 8),
    ),
    (
        "%g = (f32[8,4]{1,0}, f32[8,4]{1,0}, u32[], u32[]) collective-permute-start(%p), "
        "source_target_pairs={{0,1},{1,0},{2,2}}",
        2 * 128,
    ),
    (
        "%g = ((f32[8,4]{1,0}), f32[2,4]{1,0}) reduce-scatter-start(%p), "
        "replica_groups={{0,1,2,3},{4,5,6,7}}",
        2 * 4 * 3 * 32,
    ),
    (
        "%g = (f32[4]{0}, f32[4]{0}) all-to-all(%p, %q), replica_groups={{0,1},{2,3}}",
        2 * 32,
    ),
    ("%g = f32[64,4]{1,0} all-gather-done(%p)", 0),
    ("%g = pred[] all-reduce(%p), replica_groups={{0},{1}}", 0),
]


@pytest.mark.parametrize(("line", "wanted"), LINES)
def test_all_forms_of_the_text(line, wanted):
    found = count_collectives(f"{HEAD}  {line}\n}}\n")
    assert sum(each.bytes for each in found) == wanted


def test_what_is_no_program_is_refused():
    with pytest.raises(ed.InputError, match="a compiled program of XLA"):
        count_collectives("all-gather")
    with pytest.raises(ed.InputError, match="replica groups of an unknown form"):
        count_collectives(f"{HEAD}  %g = f32[8]{{0}} all-gather(%p), replica_groups=odd\n}}\n")


@given(seed=st.integers(0, 2**32), devices=st.sampled_from([6, 8, 12]), sharded=st.booleans())
def test_random_plans_move_what_they_say(seed, devices, sharded):
    with precise():
        graph = random_graph(seed, tree=False, most=4, moves=True)
    plan = ed.plan(graph, devices, inputs="sharded" if sharded else "free")
    found = plan.verify_jax()
    assert found.matches, str(found)
    assert found.counted == found.planned == plan.cost
    assert {row.vertex: row.planned for row in found.rows} == program_of(plan).bytes_by_vertex


@pytest.mark.long
@pytest.mark.parametrize("inputs", ["free", "sharded"])
def test_a_layer_of_llama_moves_what_it_says(inputs):
    config = replace(
        CONFIGS["7B"], layers=1, width=64, heads=8, kv_heads=4, head_size=8, hidden=96,
        vocabulary=32,
    )  # fmt: skip
    plan = ed.plan(prefill_graph(config, 2, 16), 8, inputs=inputs)
    found = plan.verify_jax()
    assert found.matches, str(found)
    assert found.counted == plan.cost > 0
    assert str(found).splitlines()[-1].endswith("as planned")


def test_what_was_not_planned_is_shown(mesh):
    """A resharding that the plan has not makes the verification fail."""
    plan = ed.plan(ed.parse("input X[i: 8, j: 8]\nZ[i] <- sum X[i,j]\noutput Z"), 8, strategy=["j"])
    planned = program_of(plan).bytes_by_vertex

    def more(x):
        with jax.named_scope("vertex.Z"):
            y = lax.psum_scatter(x, ("two", "four"), scatter_dimension=0, tiled=True)
        return y, lax.all_gather(y, "two", tiled=True)

    found = compare(planned, count_collectives(compiled(more, mesh, (8,))))
    assert not found.matches
    assert [(row.vertex, row.matches) for row in found.rows] == [
        ("Z", True),
        ("(no vertex)", False),
    ]
    assert "not as planned" in str(found)
    assert found.counted == found.planned + 8 * 4


def test_a_collective_of_an_argument_is_its_readers():
    """As XLA names it with JAX 0.11: by the argument."""
    text = """
HloModule m, num_partitions=8
ENTRY %main (p: f32[8,32], w: f32[32,16]) -> f32[64,16] {
  %g = (f32[8,32], f32[64,32]) all-gather-start(%p), replica_groups={}, metadata={op_name="x[2]"}
  %done = f32[64,32] all-gather-done(%g)
  ROOT %dot = f32[64,16] dot(%done, %w), metadata={op_name="jit(run)/vertex.H/dot"}
}"""
    assert bytes_by_vertex(count_collectives(text)) == {"H": 7 * 64 * 32 * 4}
