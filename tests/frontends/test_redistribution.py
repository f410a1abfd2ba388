"""`ed.redistribution` against the ownership of single elements: what moves, and what arrives."""

from __future__ import annotations

from collections import Counter
from functools import reduce
from itertools import product
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eindecomp as ed
from eindecomp.layout.boxes import volume, within

OPS = {"sum": np.add, "max": np.maximum, "min": np.minimum}


def owned(shape, mesh, layout, pieces, place):
    """The elements of a device, cut axis by axis: their numbers in the tensor."""
    numbers = np.arange(prod(shape)).reshape(shape)
    for dim, axes in layout.items():
        if pieces == "ceil":
            for axis in axes:
                size = -(-numbers.shape[dim] // mesh[axis])
                first = place[axis] * size
                at = range(min(first, numbers.shape[dim]), min(first + size, numbers.shape[dim]))
                numbers = numbers.take(at, dim)
        else:
            count = prod(mesh[axis] for axis in axes)
            k = reduce(lambda k, axis: k * mesh[axis] + place[axis], axes, 0)
            size = shape[dim]
            numbers = numbers.take(range(k * size // count, (k + 1) * size // count), dim)
    return numbers


class Placed:
    """The layouts of one example, element by element."""

    def __init__(self, shape, mesh, source, target, pending, kept, pieces):
        self.mesh, self.kept = mesh, kept
        self.places = [
            dict(zip(mesh, place, strict=True)) for place in product(*map(range, mesh.values()))
        ]
        self.before, self.after = (
            [owned(shape, mesh, own, pieces, place) for place in self.places]
            for own in (source, target)
        )
        self.reduced = [axis for axis in pending if axis not in kept]

    def slice_of(self, device):
        """The coordinates along axes that stay pending."""
        return tuple(self.places[device][axis] for axis in self.kept)

    def least(self):
        """The fewest messages, element by element, by the law that `schedules` checks."""
        parts = prod(self.mesh[axis] for axis in self.reduced)
        holders, readers = set(), Counter()
        wanted = set()
        for device, (before, after) in enumerate(zip(self.before, self.after, strict=True)):
            part = self.slice_of(device)
            for element in after.ravel().tolist():
                readers[part, element] += 1
                wanted.add((device, part, element))
            holders |= {(device, part, element) for element in before.ravel().tolist()}
        if parts == 1:
            return len(wanted - holders)
        met = {(part, element) for _, part, element in wanted & holders}
        return sum(parts - 1 + count - (key in met) for key, count in readers.items())


axes_names = ("x", "y", "z")


@st.composite
def examples(draw):
    """A tensor, a mesh, two layouts of it, pending axes, and those that stay pending."""
    shape = tuple(draw(st.lists(st.integers(1, 7), max_size=3)))
    count = draw(st.integers(1, 3))
    mesh = {name: draw(st.sampled_from([2, 2, 3, 4])) for name in axes_names[:count]}
    pieces = draw(st.sampled_from(["balanced", "ceil", "even"]))
    pending = [axis for axis in mesh if draw(st.integers(0, 3)) == 0]
    kept = [axis for axis in pending if draw(st.booleans())]

    def layout(without):
        cut = {}
        for axis in draw(st.permutations([a for a in mesh if a not in without])):
            dim = draw(st.integers(-1, len(shape) - 1))
            if dim < 0:
                continue
            axes = [*cut.get(dim, []), axis]
            parts = prod(mesh[a] for a in axes)
            if parts <= shape[dim] and (pieces != "even" or shape[dim] % parts == 0):
                cut[dim] = axes
        return cut

    return shape, mesh, layout(pending), layout(kept), pending, kept, pieces


def way_of(example, **options):
    """The redistribution of an example; pending layouts are made of found ones."""
    from eindecomp.frontends.given_layouts import GivenLayout
    from eindecomp.frontends.redistribution import find
    from eindecomp.layout.cut import bits_of
    from eindecomp.tra.redistribution.phases import Held

    shape, mesh, source, target, pending, kept, pieces = example
    plain = ed.redistribution(shape, mesh, source, target, pieces=pieces, collectives=False)
    names = list(mesh)

    def layout(own, axes):
        bits = bits_of(tuple(names.index(axis) for axis in axes))
        return GivenLayout(Held(own.held.cut, bits), options.get("op", "sum") if axes else None)

    both = layout(plain.source, pending), layout(plain.target, kept)
    collectives = options.get("collectives")
    return find(plain.labels, plain.shape, plain.dtype, plain.mesh, both, collectives)


def carried_out(way, blocks, op):
    """Every device's blocks after all steps, and the elements that were sent and received."""
    counted = []
    for step in way.steps:
        inward = Counter()
        for phase in step.phases:
            rows = [phase.exchange(device) for device in range(way.mesh.devices)]
            sent = Counter(
                (d, each.peer, each.box) for d, row in enumerate(rows) for each in row.sends
            )
            came = Counter(
                (each.peer, d, each.box) for d, row in enumerate(rows) for each in row.receives
            )
            assert sent == came
            after = []
            for device, row in enumerate(rows):
                mine = {}
                for box in phase.boxes(device):
                    made = np.full([high - low for low, high in box], -1)
                    parts = [*row.receives, *row.kept]
                    if phase.reduces and volume(box):
                        made = read(blocks[device], box)
                    for each in parts:
                        if phase.reduces:
                            if each.box == box:
                                made = op(made, read(blocks[each.peer], box))
                        else:
                            made[within(each.box, box)] = read(blocks[each.peer], each.box)
                    mine[box] = made
                inward[device] += sum(volume(each.box) for each in row.receives)
                after.append(mine)
            blocks = after
        counted.append((sum(inward.values()), max(inward.values())))
    return blocks, counted


def read(blocks, box):
    """A block out of those that a device has."""
    for name, array in blocks.items():
        if volume(name) and all(
            a <= c and d <= b for (a, b), (c, d) in zip(name, box, strict=True)
        ):
            return array[within(box, name)]
    raise AssertionError(f"{box} is not here")


@settings(max_examples=150, deadline=None)
@given(examples(), st.sampled_from([None, True, False]), st.sampled_from(sorted(OPS)))
def test_tensors_arrive_and_move_the_bytes_that_are_told(example, collectives, op):
    from eindecomp.layout.tiling import box_on

    shape, mesh, *_, pending, kept, _ = example
    way = way_of(example, collectives=collectives, op=op)
    placed = Placed(*example)
    rng = np.random.default_rng(0)
    names = list(mesh)
    parts = rng.integers(0, 1000, (*(mesh[a] for a in pending), *shape))
    start = []
    for device, place in enumerate(placed.places):
        own = parts[tuple(place[axis] for axis in pending)].ravel()[placed.before[device]]
        box = box_on(way.mesh, way.source.held.cut, device)
        assert own.shape == tuple(high - low for low, high in box)
        start.append({box: own})
    blocks, counted = carried_out(way, start, OPS[op])
    along = tuple(pending.index(axis) for axis in placed.reduced)
    whole = OPS[op].reduce(parts, axis=along) if along else parts
    for device, place in enumerate(placed.places):
        [found] = blocks[device].values()
        wanted = whole[tuple(place[axis] for axis in kept)].ravel()[placed.after[device]]
        np.testing.assert_array_equal(found, wanted)
    assert counted == [(s.bytes // 4, s.bytes_per_device // 4) for s in way.steps]
    assert way.bound == 4 * placed.least()
    assert way.bytes == way.bound or collectives
    assert way.bytes >= way.bound
    assert set().union(*(s.axes for s in way.steps)) <= set(names)


def schedules(holders, readers, devices):
    """The fewest messages after which all readers know the combination of all parts: by search.

    A device knows a set of parts, and a message tells all of them: no schedule can tell more.
    """
    everything = frozenset(range(len(holders)))
    start = tuple(
        frozenset(part for part, own in enumerate(holders) if device in own)
        for device in range(devices)
    )
    level, seen, messages = {start}, {start}, 0
    while not any(all(state[r] == everything for r in readers) for state in level):
        after = set()
        for state in level:
            for one, other in product(range(devices), repeat=2):
                told = (*state[:other], state[one] | state[other], *state[other + 1 :])
                if told not in seen:
                    seen.add(told)
                    after.add(told)
        level, messages = after, messages + 1
    return messages


@pytest.mark.parametrize(
    ("holders", "readers"),
    [
        ([{0}, {1}], {0}), ([{0}, {1}], {0, 1}), ([{0}, {1}, {2}], {0, 1, 2}),
        ([{0}, {1}], {2}), ([{0}, {1}], {2, 3}), ([{0, 1}, {2, 3}], {0, 2}),
        ([{0, 1}, {2, 3}], {0, 1, 2, 3}), ([{0}, {1}, {2}], {3}), ([{0}, {1}, {2}], {2, 3}),
        ([{0}, {1}, {2}, {3}], {0, 1, 2, 3}), ([{0}, {1}, {2}, {3}], {1, 2}),
    ],
)  # fmt: skip
def test_no_schedule_reduces_with_fewer_messages_than_the_bound(holders, readers):
    met = any(own & readers for own in holders)
    assert schedules(holders, readers, 4) == len(holders) - 1 + len(readers) - met


@pytest.mark.parametrize(
    ("source", "target", "kinds"),
    [
        ({0: "x"}, {}, ["all-gather"]),
        ({}, {0: "x"}, ["slice"]),
        ({0: "x"}, {1: "x"}, ["all-to-all"]),
        ({0: ["x", "y"]}, {1: ["x", "y"]}, ["all-to-all"]),
        ({0: ["x", "y"]}, {0: ["y", "x"]}, ["permute"]),
        ({0: "x"}, {0: "y"}, ["permute"]),
        ({0: "x", 1: "y"}, {0: "y", 1: "x"}, ["permute"]),
        ({0: ["x", "y"]}, {0: "y"}, ["permute", "all-gather"]),
        ({0: ["x", "y"], 1: "z"}, {0: "z", 1: ["y", "x"]}, ["direct exchange"]),
        ({0: "x"}, {0: "x"}, []),
    ],
)
def test_steps_are_the_collectives_that_one_expects(source, target, kinds):
    way = ed.redistribution((8, 8), {"x": 2, "y": 2, "z": 2}, source, target)
    assert [step.kind for step in way.steps] == kinds
    assert str(way)
    assert repr(way)


@settings(max_examples=40, deadline=None)
@given(examples())
def test_collectives_are_the_cheapest_of_all_paths(example):
    """Against a search without any estimate."""
    from eindecomp.tra.redistribution import collectives

    way = way_of(example, collectives=True)
    source, target, mesh = way.source.held, way.target.held, way.mesh
    costs, level = {source: 0}, [source]
    while level:
        after = []
        for state in level:
            for edge in collectives._collectives(mesh, state, target):
                cost = costs[state] + sum(int(p.received().sum()) for p in edge.phases(mesh))
                if cost < costs.get(edge.after, 1 << 60):
                    costs[edge.after] = cost
                    after.append(edge.after)
        level = after
    assert way.bytes == 4 * costs[target]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"target": {2: "x"}}, "target: a tensor of shape (8, 6) has no dimension 2"),
        ({"target": {0: "w"}}, "target: no mesh axis 'w'"),
        ({"source": {0: "x", 1: "x"}}, "source: no axes of the mesh"),
        ({"source": {0: 2}, "mesh": (2, 2)}, "source: 2 layouts cut a tensor of shape (8, 6)"),
        ({"source": 3}, "source: a layout is {dimension: axes}"),
        ({"source": "x"}, "source: a layout is {dimension: axes}"),
        ({"mesh": "x"}, "a mesh is a number of devices"),
        ({"mesh": None}, "a mesh is a number of devices"),
        ({"mesh": {"x": 0}}, "needs a size of 1 or more"),
        ({"shape": (8, 0)}, "sizes are 1 or more, not 0"),
        ({"shape": 8}, "a shape is a sequence of sizes"),
        ({"source": {1: "y"}, "pieces": "even"}, "dimension 1 of (8, 6) in 4 parts"),
        ({"pieces": "odd"}, "pieces are 'balanced', 'even' or 'ceil'"),
        ({"collectives": "yes"}, "collectives is True, False or None"),
        ({"dtype": "float12"}, "unknown dtype 'float12'"),
    ],
)
def test_bad_input_is_refused_with_the_reason(asked, message):
    plain = {"shape": (8, 6), "mesh": {"x": 2, "y": 4}, "source": {0: "x"}, "target": {0: "y"}}
    given = {**plain, **asked}
    with pytest.raises(ed.EinDecompError) as error:
        ed.redistribution(**given)
    assert message in str(error.value)


def test_labels_axes_of_size_one_and_large_meshes():
    way = ed.redistribution(
        {"i": 8, "j": 8}, {"x": 2, "one": 1, "y": 2}, {"i": ["x", "one"]}, {"j": ["one", "y"]}
    )
    assert way.bytes == 4 * 4 * 16
    large = ed.redistribution(
        (4096, 4096),
        1024,
        {0: [f"axis{k}" for k in range(10)]},
        {1: [f"axis{k}" for k in range(10)]},
    )
    assert large.bytes == large.bound == 4 * 4096 * 4096 * 1023 // 1024


def test_shardings_of_jax_are_taken_as_they_are():
    jax = pytest.importorskip("jax")
    spec = jax.sharding.PartitionSpec
    mesh = jax.make_mesh((2, 4), ("x", "y"))
    one, other = (
        jax.sharding.NamedSharding(mesh, own) for own in (spec("x", "y"), spec(None, ("y", "x")))
    )
    way = ed.redistribution((16, 16), None, one, other)
    own = ed.redistribution((16, 16), {"x": 2, "y": 4}, {0: "x", 1: "y"}, {1: ["y", "x"]})
    assert way.bytes == own.bytes > 0
    array = jax.device_put(np.zeros((16, 16), np.float32), one)
    moved = jax.device_put(array, other)
    for shards, layout in ((array, way.source), (moved, way.target)):
        from eindecomp.layout.tiling import box_on

        for shard in shards.addressable_shards:
            at = list(mesh.devices.ravel()).index(shard.device)
            box = tuple(tuple(s.indices(16)[:2]) for s in shard.index)
            assert box == box_on(way.mesh, layout.held.cut, at)
    pending = ed.redistribution((16, 16), mesh, spec("x", unreduced={"y"}), spec("x"))
    assert [step.kind for step in pending.steps] == ["all-reduce"]
    for wrong, message in (
        (spec("w"), "no mesh axis 'w'"), (spec("x", "x"), "used twice"),
        (spec(None, None, "x"), "more entries"), (spec(spec.UNCONSTRAINED), "open"),
    ):  # fmt: skip
        with pytest.raises(ed.PlanError, match=message):
            ed.redistribution((16, 16), mesh, wrong, spec())
    with pytest.raises(ed.PlanError, match="equal parts only"):
        ed.redistribution((6, 6), mesh, spec("y"), spec())
