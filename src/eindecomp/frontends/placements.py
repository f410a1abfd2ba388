"""Where the tensors of a plan lie and what its vertices read and make, in the words of frameworks.

Frameworks can say less about a tensor than a cut can: each device has one block of it, no axis cuts
two dimensions, and no device has only a window. `widened` is the least that they can say about what
a vertex reads. JAX says by partition specs which axes cut a dimension, DTensor by a placement for
each dimension of the mesh, in their order, each cutting what those before have left into chunks of
⌈n/m⌉. Where the axes of a dimension nest in another order, an axis that comes first but lies inside
others is *strided*: it cuts each of the chunks which those others will make, `split_factor` of
them, and takes its part of each.

A mesh of 8 devices has three axes of 2 here, so that tensors can be cut 2 × 4 or 4 × 2. Where a
plan cuts by all three or none, one dimension of 8 says the same, and a framework that communicates
along one dimension of its mesh at a time moves less: `coarsest` is the mesh of fewest dimensions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, takewhile
from math import prod
from typing import Any, Literal, TypeVar

from eindecomp.errors import PlanError
from eindecomp.frontends.input_names import qualified
from eindecomp.frontends.tensor_parallel import tp_plan
from eindecomp.graph.ops import Fill, Input
from eindecomp.layout.cut import Axes, Cut, Span, bits_of, combined, is_plain, pending_in, pieces_by
from eindecomp.layout.mesh import CEIL, Mesh
from eindecomp.layout.view import view_of
from eindecomp.planner.plan import Plan
from eindecomp.planner.space.choices import cut_of, decided_choices, summed_axes
from eindecomp.show.words import mesh_words
from eindecomp.tra.program.make import program_of

Said = TypeVar("Said")


@dataclass(frozen=True, slots=True)
class VertexCuts:
    """The cuts in which a vertex reads its operands, makes its result and leaves it."""

    reads: tuple[Cut | None, ...]
    """For each operand, None for one whose elements are never read."""
    made: Cut
    """The result as it is computed: where axes are summed, partial results of it."""
    summed: tuple[int, ...]
    home: Cut


def vertex_cuts(plan: Plan) -> dict[str, VertexCuts]:
    """The cuts of every vertex that is computed, in the order of the graph."""
    cuts: dict[str, VertexCuts] = {}
    for name, decision in plan.decisions.items():
        view = view_of(plan.graph, plan.graph[name])
        choice = decided_choices(view, plan.mesh, decision)
        summed = summed_axes(view, decision.assignment)
        summed |= sum(bits_of(wait.axes) for wait in decision.waits)
        sources = zip(plan.graph[name].inputs, choice.reads, strict=True)
        cuts[name] = VertexCuts(
            tuple(None if need is None else _read(plan, s, need.cuts[0]) for s, need in sources),
            cut_of(view, view.output, decision.assignment),
            tuple(axis for axis in range(len(plan.mesh.sizes)) if summed >> axis & 1),
            decision.home,
        )
    return cuts


def _read(plan: Plan, source: str, cut: Cut) -> Cut:
    """The cut in which a tensor is read, in parts only where it lies so.

    Frameworks have no way to read a whole tensor as if it were in parts.
    """
    left = pending_in(plan.decisions[source].home) if source in plan.decisions else None
    own = combined(cut)
    return own if left is None or pending_in(cut) is None else (*own, left)


def layouts_of(plan: Plan) -> dict[str, tuple[Cut, ...]]:
    """The layouts in which inputs and results lie, the one that has all of the tensor first.

    A fill lies nowhere: it is generated where it is read.
    """
    program = program_of(plan, turns="none")
    layouts: dict[str, tuple[Cut, ...]] = {}
    for name, vertex in plan.graph.vertices.items():
        match vertex.op:
            case Fill():
                continue
            case Input() if name not in plan.given:
                cuts = [tiling.cut for tiling in program.layouts_of(name)]
            case Input():
                cuts = plan.given[name].cuts
            case _:
                cuts = plan.decisions[name].layouts.cuts
        # A copy may be what one reader wants of the tensor; the first layout has all of it.
        layouts[name] = tuple(dict.fromkeys(widened(cut, vertex.shape) for cut in cuts))
    return layouts


def said(
    plan: Plan, say: Callable[[str, Cut], Said | None]
) -> tuple[dict[str, tuple[Said, ...]], dict[str, tuple[Said | None, ...]]]:
    """The layouts of tensors and the operands of vertices, each cut as `say` says it.

    An operand whose elements are never read is None. A tensor of whose layout `say` has nothing to
    say is left out.
    """
    told = {name: [say(name, cut) for cut in cuts] for name, cuts in layouts_of(plan).items()}
    layouts = {
        name: tuple(each for each in own if each is not None)
        for name, own in told.items()
        if None not in own
    }
    operands = {
        name: tuple(
            None if cut is None else say(source, widened(cut, plan.graph[source].shape))
            for source, cut in zip(plan.graph[name].inputs, own.reads, strict=True)
        )
        for name, own in vertex_cuts(plan).items()
    }
    return layouts, operands


def widened(cut: Cut, shape: Sequence[int]) -> Cut:
    """The least cut without windows and diagonals that has on every device what this one has.

    >>> widened((Span((0,), 4, 1, 0, 4), Span((0,), 4, 1, 0, 4), Span((), 2, 1, 3, 5)), (4, 4, 9))
    (Span(axes=(0,), units=4, scale=1, start=0, stop=4, pending='', image=None),
     Span(axes=(), units=4, scale=1, start=0, stop=4, pending='', image=None),
     Span(axes=(), units=9, scale=1, start=0, stop=9, pending='', image=None))
    """
    if (left := pending_in(cut)) is not None:
        return (*widened(combined(cut), shape), left)
    if is_plain(cut) and not has_window(cut, shape):
        return cut
    used: set[int] = set()
    spans: list[Span] = []
    for span, size in zip(cut, shape, strict=True):
        # What nests inside an axis that goes must go as well.
        kept = tuple(takewhile(lambda axis: axis not in used, span.axes))
        used.update(span.axes)
        spans.append(span._replace(axes=kept) if kept else Span((), size, 1, 0, size))
    return tuple(spans)


def has_window(cut: Cut, shape: Sequence[int]) -> bool:
    """Whether devices have only a part of some dimension that no axis cuts."""
    return any((span.start, span.stop) != (0, size) for span, size in zip(cut, shape, strict=True))


@dataclass(frozen=True, slots=True)
class Coarse:
    """A mesh whose axes are one or several neighbouring ones of a plan's mesh."""

    mesh: Mesh
    group: tuple[int, ...]
    """The axis of this mesh that each axis of the plan's went into."""

    def axes(self, axes: Sequence[int]) -> Axes:
        """Axes of the plan's mesh as those of this one."""
        return tuple(dict.fromkeys(self.group[axis] for axis in axes))

    def cut(self, cut: Cut) -> Cut:
        """A cut by the plan's mesh as one by this."""
        return tuple(span._replace(axes=self.axes(span.axes)) for span in cut)


def as_planned(plan: Plan) -> Coarse:
    """The plan's own mesh."""
    return _merged(plan.mesh, [True] * len(plan.mesh.sizes))


def coarsest(plan: Plan) -> Coarse:
    """The mesh of the fewest axes that says the same.

    >>> import eindecomp as ed
    >>> graph = ed.parse("input X[i: 8, j: 8]\\nZ[i] <- sum X[i,j]\\noutput Z")
    >>> coarsest(ed.plan(graph, 8)).mesh.sizes
    (8,)
    """
    return _merged(plan.mesh, _boundaries(plan))


def of_shape(plan: Plan, sizes: Sequence[int]) -> Coarse:
    """The mesh of a given shape, refused where the plan keeps axes apart that would be one."""
    wanted = [size for size in sizes if size > 1]
    ends = {prod(wanted[:k]) for k in range(len(wanted))}
    sizes_before = [prod(plan.mesh.sizes[:axis]) for axis in range(len(plan.mesh.sizes))]
    starts = [before in ends for before in sizes_before]
    merged = _merged(plan.mesh, starts)
    joins = any(
        apart and not begins for begins, apart in zip(starts, _boundaries(plan), strict=True)
    )
    if joins or list(merged.mesh.sizes) != wanted:
        raise PlanError(f"the plan is for a mesh of {mesh_words(plan.mesh)}, not of {tuple(sizes)}")
    return merged


def _merged(mesh: Mesh, starts: Sequence[bool]) -> Coarse:
    """The mesh whose axes start at some of the given one's."""
    group = tuple(count - 1 for count in accumulate(map(int, starts)))
    parts = [[a for a, own in enumerate(group) if own == k] for k in range(sum(starts))]
    names = tuple("_".join(mesh.names[a] for a in part) for part in parts)
    sizes = tuple(prod(mesh.sizes[a] for a in part) for part in parts)
    return Coarse(Mesh(names, sizes, mesh.pieces), group)


def _boundaries(plan: Plan) -> list[bool]:
    """Whether the plan keeps each axis apart from the one before it."""
    layouts, operands = said(plan, lambda _, cut: cut)
    vertices = vertex_cuts(plan).values()
    cuts = [cut for own in (*layouts.values(), *operands.values()) for cut in own if cut]
    cuts += [cut for own in vertices for cut in (own.made, own.home)]
    spans = {span for cut in cuts for span in cut if span.axes}
    summed = {own.summed for own in vertices}
    return [
        axis == 0
        or any(_parts(plan.mesh, span, axis - 1, axis) for span in spans)
        or any((axis - 1 in own) != (axis in own) for own in summed)
        for axis in range(len(plan.mesh.sizes))
    ]


def _parts(mesh: Mesh, span: Span, one: int, other: int) -> bool:
    """Whether a dimension is not cut by two axes as if they were one."""
    if one not in span.axes and other not in span.axes:
        return False
    place = span.axes.index(one) if one in span.axes else -1
    if place < 0 or span.axes[place : place + 2] != (one, other):
        return True
    # Chunks of chunks are not the chunks that both axes make at once.
    return mesh.pieces == CEIL and span.units % pieces_by(mesh, span.axes) != 0


@dataclass(frozen=True, slots=True)
class Sharded:
    """Devices along a mesh dimension have chunks of a dimension of the tensor."""

    dim: int
    split_factor: int = 1

    def __str__(self) -> str:
        if self.split_factor == 1:
            return f"Shard({self.dim})"
        return f"_StridedShard({self.dim}, split_factor={self.split_factor})"


@dataclass(frozen=True, slots=True)
class InParts:
    """Devices along a mesh dimension have parts of the tensor that ⊕ has still to combine."""

    reduce_op: str

    def __str__(self) -> str:
        return f"Partial({self.reduce_op})"


Places = tuple[Sharded | InParts | None, ...]
"""For each dimension of the mesh what it does with a tensor; None where it replicates it."""
REDUCE_OPS = {"sum": "sum", "prod": "product", "max": "max", "min": "min"}
"""DTensor's words for aggregations; of others it has no parts."""


def placed(mesh: Mesh, cut: Cut, shape: Sequence[int], tensor: str) -> Places:
    """The placements that give every device the block that a cut gives it.

    >>> from eindecomp.layout.cut import Span
    >>> from eindecomp.layout.mesh import Mesh
    >>> mesh = Mesh.of_axes({"x": 2, "y": 4})
    >>> [str(each) for each in placed(mesh, (Span((1, 0), 8, 1, 0, 8),), (8,), "X")]
    ['_StridedShard(0, split_factor=4)', 'Shard(0)']
    """
    left, cut = pending_in(cut), combined(cut)
    _check_plain(cut, shape, tensor)
    places: list[Sharded | InParts | None] = [None for _ in mesh.sizes]
    if left is not None and left.pending in REDUCE_OPS:
        for axis in left.axes:
            places[axis] = InParts(REDUCE_OPS[left.pending])
    for dim, span in enumerate(cut):
        for k, axis in enumerate(span.axes):
            outer_but_later = [a for a in span.axes[:k] if a > axis]
            places[axis] = Sharded(dim, pieces_by(mesh, tuple(outer_but_later)))
        if span.units % pieces_by(mesh, span.axes):
            _check_chunks(mesh, span, dim, tensor)
    return tuple(places)


def _check_plain(cut: Cut, shape: Sequence[int], tensor: str) -> None:
    """Refuse a layout of which no framework can speak."""
    if not is_plain(cut):
        raise PlanError(
            f"{tensor} lies along its diagonal: a mesh axis cuts two of its dimensions, which no "
            "placement can say"
        )
    if has_window(cut, shape):
        raise PlanError(f"devices hold a part of {tensor} only, which no placement can say")


def _check_chunks(mesh: Mesh, span: Span, dim: int, tensor: str) -> None:
    """Refuse an uneven dimension that DTensor may cut at other places than the plan."""
    size, parts = span.stop, pieces_by(mesh, span.axes)
    where = f"dimension {dim} of {tensor}, {size} elements in {parts} parts"
    if mesh.pieces != CEIL:
        raise PlanError(
            f"DTensor cuts {where}, into chunks of {-(-size // parts)}, the plan into pieces that "
            "differ by at most one: plan with pieces='ceil', or pieces='even'"
        )
    if list(span.axes) != sorted(span.axes) or span.scale > 1:
        why = "blocks of several elements" if span.scale > 1 else "axes that are not in mesh order"
        raise PlanError(
            f"no placement cuts {where}, where the plan does: they are uneven, by {why}; plan with "
            "pieces='even', or on a mesh of one axis: mesh={'x': n}"
        )


Spec = tuple[tuple[str, ...] | None, ...]


def partition_spec(mesh: Mesh, cut: Cut, shape: Sequence[int], tensor: str) -> Spec:
    """For each dimension of a tensor the axes that cut it, outermost first; None for none.

    >>> from eindecomp.layout.cut import Span
    >>> from eindecomp.layout.mesh import Mesh
    >>> mesh = Mesh.of_axes({"x": 2, "y": 4})
    >>> partition_spec(mesh, (Span((1, 0), 8, 1, 0, 8), Span((), 3, 1, 0, 3)), (8, 3), "X")
    (('y', 'x'), None)
    """
    _check_plain(cut, shape, tensor)
    for dim, span in enumerate(cut):
        parts = pieces_by(mesh, span.axes)
        if span.units % parts:
            blocks = f" in blocks of {span.scale}" if span.scale > 1 else ""
            raise PlanError(
                f"JAX cuts into equal parts only, and dimension {dim} of {tensor} has "
                f"{span.stop} elements{blocks}, which {parts} does not divide: plan with "
                "pieces='even'"
            )
    return tuple(tuple(mesh.names[a] for a in span.axes) or None for span in cut)


Target = Literal["dtensor", "jax", "tp-plan"]


def exported(plan: Plan, to: Target, *, fewest: bool = False) -> dict[str, Any]:
    """A plan as JSON values for a framework, which need not be installed.

    With `fewest`, DTensor's placements are those on the mesh of the fewest dimensions.
    """
    if to == "tp-plan":
        return tp_plan(plan)
    on = coarsest(plan) if fewest and to == "dtensor" else as_planned(plan)
    weights = {each.name: qualified(each.name) for each in plan.graph.inputs}
    words: dict[str, list[Any]] = {}
    for name, cuts in layouts_of(plan).items():
        shape = plan.graph[name].shape
        if to == "jax" and pending_in(cuts[0]) is not None:
            continue  # JAX has no name for a tensor in parts
        if to == "jax":
            words[name] = [partition_spec(on.mesh, cut, shape, name) for cut in cuts]
        else:
            places = [placed(on.mesh, on.cut(cut), shape, name) for cut in cuts]
            words[weights.get(name, name)] = [
                [str(each or "Replicate()") for each in own] for own in places
            ]
    return {
        "mesh": on.mesh.axes,
        "shardings" if to == "jax" else "placements": {name: w[0] for name, w in words.items()},
        "copies": {name: own[1:] for name, own in words.items() if len(own) > 1},
    }
