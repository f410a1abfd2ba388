"""Meshes and layouts as users write them: EinDecomp's own, DTensor's placements, JAX's shardings.

They are known by what they look like, so that neither framework has to be installed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from eindecomp.errors import PlanError, quote, suggest
from eindecomp.graph.graph import Graph
from eindecomp.layout.cut import Axes, Cut, bits_of, pieces_by, span_of
from eindecomp.layout.mesh import BALANCED, CEIL, EVEN, PIECES, Mesh, is_whole
from eindecomp.layout.view import Dim
from eindecomp.planner.space.pin import pinned_cuts
from eindecomp.tra.redistribution.phases import Held

REDUCE_OPS = ("sum", "avg", "product", "max", "min")


@dataclass(frozen=True, slots=True)
class GivenMesh:
    """A mesh as it was given, axes of size 1 included, and the one that has only the others."""

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    mesh: Mesh

    def axes(self, names: Sequence[str]) -> Axes:
        """Axes by number, without those of size 1."""
        kept = (name for name in names if self.sizes[self.names.index(name)] > 1)
        return tuple(self.mesh.names.index(name) for name in kept)


@dataclass(frozen=True, slots=True)
class GivenTensor:
    """The dimensions of a tensor: its labels, or `dim0`, `dim1`, … where it has none."""

    labels: tuple[str, ...]
    shape: tuple[int, ...]

    def dim(self, given: object, whose: str) -> int:
        """A dimension by its label or its number, which counts from the end if it is negative."""
        if is_whole(given) and -len(self.shape) <= given < len(self.shape):
            return int(given) % len(self.shape)
        if given in self.labels:
            return self.labels.index(cast("str", given))
        like = suggest(str(given), self.labels)
        raise PlanError(f"{whose}: a tensor of shape {self.shape} has no dimension {given!r}{like}")

    def cut(self, axes: Sequence[Axes]) -> Cut:
        """The cut of its dimensions by these axes."""
        return tuple(span_of(Dim(None, 0, n), own) for n, own in zip(self.shape, axes, strict=True))


@dataclass(frozen=True, slots=True)
class GivenLayout:
    """A layout, how its pending parts are combined, and the rule of its dialect for pieces."""

    held: Held
    reduce_op: str | None = None
    pieces: str | None = None
    placements: tuple[Any, ...] | None = None
    """DTensor's, if it was given so."""


def tensor_of(shape: Any) -> GivenTensor:
    """The tensor of a shape, `(4, 6)` or `{"i": 4, "j": 6}`."""
    given: Any = shape  # as `shape` is narrowed to types that say less
    named = isinstance(shape, Mapping)
    if isinstance(shape, str) or not hasattr(given, "__iter__"):
        raise PlanError(f"a shape is a sequence of sizes or {{label: size}}, not {quote(given)}")
    sizes: tuple[Any, ...] = tuple(given.values() if named else given)
    for size in sizes:
        if not is_whole(size) or size < 1:
            raise PlanError(f"a tensor's sizes are 1 or more, not {quote(size)} in {sizes}")
    labels: tuple[str, ...] = tuple(given if named else (f"dim{k}" for k in range(len(sizes))))
    return GivenTensor(labels, tuple(int(size) for size in sizes))


def mesh_of(mesh: Any, *layouts: Any) -> GivenMesh:
    """The mesh of a number, sizes, `{axis: size}`, a DeviceMesh, or a mesh of JAX.

    None stands for the mesh of a layout that has one.
    """
    if mesh is None:
        meshes: list[Any] = [own.mesh for own in layouts if hasattr(own, "mesh")]
        mesh = meshes[0] if meshes else None
    axes = _axes_of(mesh)
    names, sizes = tuple(axes), tuple(axes.values())
    return GivenMesh(names, tuple(map(int, sizes)), Mesh.of_axes(axes))


def _axes_of(mesh: Any) -> dict[str, Any]:
    """The axes of a mesh and their sizes."""
    given: Any = mesh
    if is_whole(mesh):
        mesh = given = Mesh.of_devices(mesh)
    if isinstance(mesh, Mesh):
        return dict(zip(mesh.names, mesh.sizes, strict=True))
    if isinstance(mesh, Mapping):
        return dict(given)
    if hasattr(given, "axis_names") and hasattr(given, "shape"):  # of JAX
        return dict(given.shape)
    names: Any = None
    if hasattr(given, "mesh_dim_names"):  # of torch
        names, given = given.mesh_dim_names, tuple(given.shape)
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise PlanError(
            "a mesh is a number of devices, a sequence of sizes, {axis: size}, a DeviceMesh or a "
            f"jax.sharding.Mesh, not {quote(mesh)}"
        )
    sizes = cast("Sequence[Any]", given)
    return dict(zip(names or (f"axis{k}" for k in range(len(sizes))), sizes, strict=True))


def layouts_of(
    given: GivenMesh, tensor: GivenTensor, source: Any, target: Any, pieces: str | None
) -> tuple[Mesh, GivenLayout, GivenLayout]:
    """Both layouts, on a mesh that cuts into pieces as their dialects do."""
    if pieces is not None and pieces not in PIECES:
        raise PlanError(f"pieces are 'balanced', 'even' or 'ceil', not {quote(pieces)}")
    both = tuple(
        _layout(given, tensor, own, whose)
        for own, whose in ((source, "source"), (target, "target"))
    )
    rules = {own.pieces for own in both} - {None}
    for rule in (CEIL, EVEN):  # where both are spoken, JAX's equal pieces are chunks as well
        if rule in rules and pieces not in (None, rule) and rules != {CEIL, EVEN}:
            dialect = "DTensor's placements cut" if rule == CEIL else "JAX cuts"
            raise PlanError(f"{dialect} into pieces='{rule}', not {pieces!r}")
    rule = CEIL if CEIL in rules else EVEN if EVEN in rules else pieces or BALANCED
    mesh = replace(given.mesh, pieces=rule)
    for own, whose in zip(both, ("source", "target"), strict=True):
        _check_pieces(mesh, tensor, own, whose)
    return mesh, both[0], both[1]


def _check_pieces(mesh: Mesh, tensor: GivenTensor, own: GivenLayout, whose: str) -> None:
    for dim, span in enumerate(own.held.cut):
        parts = pieces_by(mesh, span.axes)
        if span.units % parts == 0:
            continue
        what = f"{whose}: dimension {dim} of {tensor.shape} in {parts} parts"
        if mesh.cuts_evenly or own.pieces == EVEN:
            raise PlanError(f"{what}: JAX and pieces='even' cut into equal parts only")
        if own.pieces == CEIL and list(span.axes) != sorted(span.axes):
            raise PlanError(
                f"{what}: _StridedShard of an uneven dimension leaves devices more than one block"
            )


def _layout(given: GivenMesh, tensor: GivenTensor, layout: Any, whose: str) -> GivenLayout:
    if hasattr(layout, "spec") and hasattr(layout, "mesh"):  # NamedSharding
        shape = {str(name): int(size) for name, size in layout.mesh.shape.items()}
        if shape != dict(zip(given.names, given.sizes, strict=True)):
            wanted = dict(zip(given.names, given.sizes, strict=True))
            raise PlanError(f"{whose}: its mesh is {shape}, the mesh given {wanted}")
        layout = layout.spec
    if type(layout).__module__.startswith("jax") and hasattr(layout, "index"):  # PartitionSpec
        return _of_spec(given, tensor, layout, whose)
    if layout is None or isinstance(layout, Mapping):
        return _of_axes(given, tensor, layout or {}, whose)
    if _is_placement(layout):
        return _of_placements(given, tensor, (layout,), whose)
    entries = cast("Sequence[Any]", layout)
    if isinstance(layout, Sequence) and all(map(_is_placement, entries)):
        return _of_placements(given, tensor, tuple(entries), whose)
    raise PlanError(
        f"{whose}: a layout is {{dimension: axes}}, DTensor's placements, a PartitionSpec or a "
        f"NamedSharding, not {quote(entries)}"
    )


def _is_placement(given: Any) -> bool:
    return type(given).__name__ in ("Shard", "_StridedShard", "Replicate") or hasattr(
        given, "reduce_op"
    )


def _of_axes(given: GivenMesh, tensor: GivenTensor, layout: Any, whose: str) -> GivenLayout:
    """A layout as a pin writes it: `{"i": "x"}`, `{0: ["x", "y"]}` or `{"i": 4}`, pieces."""
    wanted: dict[str, Any] = {}
    for dim, axes in layout.items():
        names = [axes] if isinstance(axes, str) else axes
        if isinstance(names, Sequence):
            known = cast("Sequence[Any]", names)
            axes = [a for a in known if a not in given.names or given.axes((a,))]
        wanted[tensor.labels[tensor.dim(dim, whose)]] = axes
    graph = Graph()
    graph.input("tensor", dict(zip(tensor.labels, tensor.shape, strict=True)))
    try:
        cuts = pinned_cuts(graph, given.mesh, {"tensor": wanted})["tensor"]
    except PlanError as error:
        raise PlanError(f"{whose}: {str(error).removeprefix('pin: ')}") from None
    if len(cuts) != 1:
        raise PlanError(
            f"{whose}: {len(cuts)} layouts cut a tensor of shape {tensor.shape} as {dict(layout)}: "
            f"name the axes, of {', '.join(given.mesh.names)}"
        )
    [cut] = cuts
    return GivenLayout(Held(cut))


def _of_spec(given: GivenMesh, tensor: GivenTensor, spec: Any, whose: str) -> GivenLayout:
    """A PartitionSpec of JAX."""
    entries: list[Any] = [*getattr(spec, "partitions", spec)]
    if len(entries) > len(tensor.shape):
        raise PlanError(f"{whose}: {spec} has more entries than a tensor of shape {tensor.shape}")
    rows: list[Axes] = []
    used: list[str] = []
    for entry in [*entries, *[None] * (len(tensor.shape) - len(entries))]:
        names = () if entry is None else (entry,) if isinstance(entry, str) else entry
        if not isinstance(names, tuple):
            raise PlanError(f"{whose}: {spec} leaves a dimension open: {entry!r}")
        rows.append(_named(given, cast("tuple[str, ...]", names), used, whose))
    pending = _named(given, tuple(sorted(getattr(spec, "unreduced", ()))), used, whose)
    return GivenLayout(Held(tensor.cut(rows), bits_of(pending)), "sum" if pending else None, EVEN)


def _named(given: GivenMesh, names: tuple[str, ...], used: list[str], whose: str) -> Axes:
    """Axes by number, each used once in a layout."""
    for name in names:
        if name not in given.names:
            raise PlanError(f"{whose}: no mesh axis {name!r}{suggest(str(name), given.names)}")
        if name in used:
            raise PlanError(f"{whose}: the mesh axis {name!r} is used twice")
        used.append(name)
    return given.axes(names)


def _of_placements(
    given: GivenMesh, tensor: GivenTensor, placements: tuple[Any, ...], whose: str
) -> GivenLayout:
    """One placement of DTensor for each dimension of the mesh."""
    if len(placements) != len(given.sizes):
        raise PlanError(
            f"{whose}: {len(placements)} placements for a mesh of {len(given.sizes)} dimensions, "
            f"{given.sizes}"
        )
    rows: list[Axes] = [() for _ in tensor.shape]
    pending: list[int] = []
    ops: set[str] = set()
    # From the last: a strided axis lies inside the first of the later ones that make its factor.
    for name, own in reversed([*zip(given.names, placements, strict=True)]):
        for axis in given.axes((name,)):
            match type(own).__name__:
                case "Replicate":
                    pass
                case "Shard" | "_StridedShard":
                    dim = tensor.dim(own.dim, whose)
                    rows[dim] = _inside(given.mesh, rows[dim], axis, own, whose)
                case "Partial" if own.reduce_op in REDUCE_OPS:
                    pending.append(axis)
                    ops.add(own.reduce_op)
                case _:
                    raise PlanError(f"{whose}: {own!r} cannot be redistributed")
    if len(ops) > 1:
        raise PlanError(f"{whose}: parts are combined in several ways, {', '.join(sorted(ops))}")
    held = Held(tensor.cut(rows), bits_of(tuple(pending)))
    return GivenLayout(held, next(iter(ops), None), CEIL, placements)


def _inside(mesh: Mesh, later: Axes, axis: int, own: Any, whose: str) -> Axes:
    """Axes that cut a dimension with an earlier one added, inside `split_factor` pieces."""
    factor = int(getattr(own, "split_factor", 1))
    for place in range(len(later) + 1):
        if pieces_by(mesh, later[:place]) == factor:
            return (*later[:place], axis, *later[place:])
    raise PlanError(
        f"{whose}: {own!r} over a mesh of {mesh.sizes} leaves devices more than one block: no "
        f"later axes cut its dimension into {factor}"
    )
