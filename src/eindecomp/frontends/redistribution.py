"""`ed.redistribution`: a tensor from one layout to another, at the fewest bytes moved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eindecomp.above import from_above
from eindecomp.errors import PlanError, UnsolvedError, quote
from eindecomp.frontends.given_layouts import GivenLayout, layouts_of, mesh_of, tensor_of
from eindecomp.lang.dtypes import DType
from eindecomp.lang.dtypes import dtype as dtype_of
from eindecomp.layout.cut import axes_in
from eindecomp.layout.mesh import Mesh
from eindecomp.show.words import axes_words, exact, layout, mesh_words, ratio, render, short, table
from eindecomp.tra.redistribution.collectives import cheapest, crossed
from eindecomp.tra.redistribution.phases import Held, Phase, direct, least_elements

_FETCHED = (
    "no schedule moves less: each device receives exactly the elements that it wants and lacks"
)
_REDUCED = (
    "no schedule that sends elements and combinations of them moves less: n parts of an element "
    "that t devices want reduced take n − 1 + t messages, one fewer where a device has a part and "
    "wants the result"
)
_COLLECTIVE = (
    "of all sequences of all-gathers, slices, all-to-alls, permutes, reduce-scatters and "
    "all-reduces along axes of this mesh"
)


@dataclass(frozen=True, slots=True)
class RedistributionStep:
    """One thing that all devices do together on the way from one layout to another.

    Attributes:
        kind: what it is, such as `"all-gather"`: all-gather, all-to-all, slice, permute,
            reduce-scatter or all-reduce; or, where devices send each other just what they lack,
            `"direct exchange"` and before it, for pending tensors, `"direct reduction"`.
        axes: the mesh axes along which it goes, such as `("x",)`.
        layout: where the tensor lies after it, such as `"dim0 over x, replicated over y"`.
        bytes: what all devices receive in it together, such as `4096`.
        bytes_per_device: what the device receives that receives most, such as `512`.
        phases: what each device sends and receives, such as `(Fetch(...),)`.
    """

    kind: str
    axes: tuple[str, ...]
    layout: str
    bytes: int
    bytes_per_device: int
    phases: tuple[Phase, ...]


@dataclass(frozen=True, slots=True, repr=False)
class Redistribution:
    """The way of a tensor from one layout to another.

    Attributes:
        labels: the labels of its dimensions, such as `("dim0", "dim1")`.
        shape: their sizes, such as `(8, 16)`.
        dtype: the type of its elements, such as `dtype('float32')`.
        mesh: the mesh that it lies on, such as `Mesh(names=('x', 'y'), sizes=(2, 4))`.
        source: the layout that it has, such as `GivenLayout(...)`.
        target: the layout that it gets, such as `GivenLayout(...)`.
        steps: what devices do, one after the other, such as `(RedistributionStep(...),)`.
        bound: what no schedule can undercut, in bytes, such as `4096`.
        collective_bytes: what the cheapest collectives move, such as `6144`; None where the
            layouts were too many to look at, or nobody asked.

    Examples:
        >>> import eindecomp as ed
        >>> way = ed.redistribution((8, 16), {"x": 2, "y": 2}, {0: ["x", "y"]}, {0: "x"})
        >>> way.bytes, way.bound, [step.kind for step in way.steps]
        (512, 512, ['all-gather'])
    """

    labels: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: DType
    mesh: Mesh
    source: GivenLayout
    target: GivenLayout
    steps: tuple[RedistributionStep, ...]
    bound: int
    collective_bytes: int | None

    @property
    def bytes(self) -> int:
        """What all devices receive together."""
        return sum(step.bytes for step in self.steps)

    @property
    def is_direct(self) -> bool:
        """Whether devices send each other just what they lack, instead of collectives."""
        return any(step.kind.startswith("direct") for step in self.steps)

    @property
    def proof(self) -> str:
        """What is proved of its bytes, and of what space."""
        if self.bytes > self.bound:
            times = ratio(self.bytes / self.bound) if self.bound else "∞"
            divides = all(size % self.mesh.devices == 0 for size in self.shape)
            least = "the least" if divides else "the least found, as sizes do not divide,"
            beyond = f"{times} what no schedule can undercut, {self.bound:,} bytes"
            return f"{least} {_COLLECTIVE}; {beyond}"
        reduced = self.source.held.pending & ~self.target.held.pending
        return _REDUCED if reduced else _FETCHED

    def apply(self, tensor: Any, group: Any = None) -> Any:
        """Move a tensor over a process group of torch.distributed, of which all ranks call this.

        Gradients flow back along the way from the target to the source.

        Args:
            tensor: A DTensor that lies as `source` says, whose new DTensor is returned; or the
                block that this rank has of the tensor, as `local`, for its block of the target.
            group: For a block, the process group whose k-th rank is device k, such as
                `dist.group.WORLD`, which is the default.

        Raises:
            InputError: The tensor is another, lies otherwise, or there is no such group.
        """
        return from_above("frontends.torch.redistributing").redistribute(self, tensor, group)

    def __str__(self) -> str:
        mesh = self.mesh
        lies = [
            layout(mesh, self.labels, self.shape, own.cut, axes_in(mesh, own.pending))
            for own in (self.source.held, self.target.held)
        ]
        size = ", ".join(map(str, self.shape))
        head = f"{self.dtype}[{size}] on {mesh_words(mesh) or 'one device'}: {lies[0]} → {lies[1]}"
        rows = table("step", "axes", "then", "per device", "in all", left=3)
        for step in self.steps:
            each, total = short(step.bytes_per_device, "bytes"), short(step.bytes, "bytes")
            rows.add_row(step.kind, "·".join(step.axes), step.layout, each, total)
        told = f"{exact(self.bytes, 'bytes')} in all: {self.proof}."
        if self.is_direct and self.collective_bytes is not None:
            told += f" Collectives would move {exact(self.collective_bytes, 'bytes')}."
        return render(100, *((head, rows, told) if self.steps else (head, "nothing moves")))

    def __repr__(self) -> str:
        kinds = ", ".join(step.kind for step in self.steps) or "nothing moves"
        return f"<Redistribution of {self.shape}: {kinds}; {self.bytes:,} bytes>"


def redistribution(
    shape: Sequence[int] | Mapping[str, int],
    mesh: Any,
    source: Any,
    target: Any,
    *,
    dtype: Any = "float32",
    collectives: bool | None = None,
    pieces: str | None = None,
) -> Redistribution:
    """Find how a tensor gets from one layout to another with the fewest bytes moved.

    Fetching directly, each device receives exactly what it lacks, which nothing can undercut.
    Collectives along mesh axes may move more; where they do not, they are what is chosen. Layouts
    may be of different dialects: EinDecomp's, DTensor's and JAX's.

    Args:
        shape: The tensor's sizes, such as `(8, 16)`, or with labels, `{"i": 8, "j": 16}`.
        mesh: A number of devices, `8`, sizes, `(2, 4)`, names with sizes, `{"x": 2, "y": 4}`, a
            `DeviceMesh` of torch or a `Mesh` of JAX; `None` takes that of a `NamedSharding`.
        source: The layout that the tensor has: for each dimension the axes that cut it, outermost
            first, such as `{0: "x", "j": ["y", "z"]}`; placements of DTensor such as
            `[Shard(0), Partial()]`; or a `PartitionSpec` or `NamedSharding` of JAX.
        target: The layout that it gets, written likewise. A `Partial` there must be one already.
        dtype: The type of its elements, such as `"bfloat16"`.
        collectives: `True` for collectives only, `False` for direct exchanges only; `None` takes
            whichever moves fewer bytes, and collectives where both move the same.
        pieces: Where sizes do not divide, how they are cut: `"balanced"`, `"even"` or `"ceil"`, as
            for `ed.plan`. DTensor's placements imply `"ceil"`, JAX's shardings `"even"`.

    Raises:
        PlanError: A layout does not fit the tensor or the mesh.
        UnsolvedError: The layouts are too many for `collectives=True`.

    Examples:
        >>> import eindecomp as ed
        >>> way = ed.redistribution((64, 64), {"x": 2, "y": 4}, {0: "x", 1: "y"}, {0: "y", 1: "x"})
        >>> print(way)
        float32[64, 64] on x=2 × y=4: dim0 over x, dim1 over y → dim0 over y, dim1 over x
         step             axes  then                      per device  in all
         ───────────────────────────────────────────────────────────────────
         direct exchange  x·y   dim0 over y, dim1 over x       2 KiB  12 KiB
        12 KiB (12,288 bytes) in all: no schedule moves less: each device receives exactly the
        elements that it wants and lacks. Collectives would move 30 KiB (30,720 bytes).
    """
    tensor = tensor_of(shape)
    on, one, other = layouts_of(mesh_of(mesh, source, target), tensor, source, target, pieces)
    _check_pending(on, one, other)
    name = str(dtype).removeprefix("torch.") if type(dtype).__module__ == "torch" else dtype
    return find(tensor.labels, tensor.shape, dtype_of(name), on, (one, other), collectives)


def find(
    labels: tuple[str, ...],
    shape: tuple[int, ...],
    dtype: DType,
    mesh: Mesh,
    between: tuple[GivenLayout, GivenLayout],
    collectives: bool | None = None,
) -> Redistribution:
    """The cheapest way between two layouts on a mesh."""
    if collectives not in (None, True, False):
        raise PlanError(f"collectives is True, False or None, not {quote(collectives)}")
    source, target = (own.held for own in between)

    def step(
        kind: str, axes: Sequence[int], then: Held | str, phases: Sequence[Phase]
    ) -> RedistributionStep:
        if isinstance(then, Held):
            then = layout(mesh, labels, shape, then.cut, axes_in(mesh, then.pending))
        received = dtype.itemsize * sum(phase.received() for phase in phases)
        names = tuple(mesh.names[axis] for axis in axes)
        total, most = int(np.sum(received)), int(np.max(received))
        return RedistributionStep(kind, names, then, total, most, tuple(phases))

    bound = least_elements(mesh, source, target) * dtype.itemsize
    path = None if collectives is False else cheapest(mesh, source, target)
    if path is None and collectives:
        raise UnsolvedError(
            f"a mesh of {len(mesh.sizes)} axes has too many layouts of a tensor of shape {shape} "
            "to find the cheapest collectives: leave it to collectives=None"
        )
    steps = [step(each.kind, each.axes, each.after, each.phases(mesh)) for each in path or ()]
    known = None if path is None else sum(each.bytes for each in steps)
    if not collectives and (known is None or known > bound):
        reduced = axes_in(mesh, source.pending & ~target.pending)
        axes = sorted({*crossed(source.cut, target.cut), *reduced})
        *first, last = direct(mesh, source, target)
        once = "each element reduced on one device"
        steps = [step("direct reduction", reduced, once, [each]) for each in first]
        steps += [step("direct exchange", axes, target, [last])] if source != target else []
    return Redistribution(labels, shape, dtype, mesh, *between, tuple(steps), bound, known)


def _check_pending(mesh: Mesh, source: GivenLayout, target: GivenLayout) -> None:
    """Refuse a target that is pending where the source is not."""
    new = target.held.pending & ~source.held.pending
    if new:
        axes = axes_words(mesh, axes_in(mesh, new))
        raise PlanError(f"target: pending over {axes}, along which the source is not: reduce it")
    if target.held.pending and source.reduce_op != target.reduce_op:
        raise PlanError(
            f"target: parts that wait for {target.reduce_op!r}, where those of the source wait for "
            f"{source.reduce_op!r}"
        )
