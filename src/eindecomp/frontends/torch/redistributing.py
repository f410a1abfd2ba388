"""`Redistribution.apply`: blocks of a tensor, sent between the ranks of a process group."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.distributed
from torch import Tensor
from torch.distributed.tensor import DTensor

from eindecomp.engines.spmd.torch_ranks import as_bytes
from eindecomp.errors import InputError, RunError
from eindecomp.frontends.given_layouts import GivenLayout, layouts_of, mesh_of, tensor_of
from eindecomp.frontends.placements import placed
from eindecomp.frontends.redistribution import Redistribution, find
from eindecomp.frontends.torch.dtensor import torch_placements
from eindecomp.layout.boxes import Box, inside, shape_of, show_box, volume, within
from eindecomp.layout.cut import axes_in, boxes_key, parts_of
from eindecomp.layout.tiling import box_on
from eindecomp.tra.program.device_row import Exchange, Transfer
from eindecomp.tra.redistribution.phases import Held, Phase

dist: Any = torch.distributed  # whose types say less than its documentation


@dataclass(frozen=True, slots=True)
class _Ranks:
    """The global rank of every device, which of them is here, and the group that they talk in."""

    ranks: tuple[int, ...]
    device: int
    group: Any = None
    is_local: bool = True
    """Whether gradients are those of blocks; a DTensor's are of the whole tensor."""


def redistribute(way: Redistribution, tensor: Any, group: Any = None) -> Any:
    """A DTensor, or the block that this rank has of a tensor, in its new layout."""
    if not isinstance(tensor, Tensor):
        raise InputError(
            f"apply takes a DTensor, or a rank's block of one, not a {type(tensor).__name__}; "
            "jax.device_put(array, target) moves arrays of JAX"
        )
    if not dist.is_initialized():
        raise InputError("apply needs a process group: torch.distributed.init_process_group(...)")
    if isinstance(tensor, DTensor):
        return _of_dtensor(way, tensor)
    count = dist.get_world_size(group)
    if count != way.mesh.devices:
        raise InputError(f"{way!r} is over {way.mesh.devices} devices, the group has {count} ranks")
    peers = range(count)
    ranks = tuple(peers if group is None else (dist.get_global_rank(group, k) for k in peers))
    return _moved(way, tensor, _Ranks(ranks, dist.get_rank(group), group))


def _of_dtensor(way: Redistribution, tensor: DTensor) -> DTensor:
    mesh = tensor.device_mesh
    held = tuple(tensor.placements)
    given = mesh_of(mesh)
    if tuple(tensor.shape) != way.shape or given.mesh.sizes != way.mesh.sizes:
        raise InputError(
            f"{way!r} is over a mesh of {way.mesh.sizes}, the DTensor has shape "
            f"{tuple(tensor.shape)} over a mesh of {given.mesh.sizes}"
        )
    on, own, _ = layouts_of(given, tensor_of(way.shape), held, {}, None)
    same = boxes_key(on, own.held.cut) == boxes_key(way.mesh, way.source.held.cut)
    if not same or own.held.pending != way.source.held.pending:
        raise InputError(f"{way!r} does not start where the DTensor lies, {held}")
    if own.reduce_op not in (None, way.source.reduce_op):
        raise InputError(f"{way!r} reduces by {way.source.reduce_op!r}, the DTensor is {held}")
    placements = way.target.placements
    if placements is None:
        pending = axes_in(way.mesh, way.target.held.pending)
        places = placed(way.mesh, way.target.held.cut, way.shape, "the tensor")
        placements = torch_placements(places, mesh, pending, way.target.reduce_op or "sum")
    ranks: list[int] = [int(rank) for rank in mesh.mesh.flatten()]
    moved = tensor.to_local()
    if (rank := dist.get_rank()) in ranks:  # others have nothing of the tensor
        moved = _moved(way, moved, _Ranks(tuple(ranks), ranks.index(rank), is_local=False))
    return DTensor.from_local(
        moved, mesh, placements, run_check=False, shape=tensor.shape, stride=tensor.stride()
    )


def _moved(way: Redistribution, local: Tensor, here: _Ranks) -> Tensor:
    box = box_on(way.mesh, way.source.held.cut, here.device)
    if tuple(local.shape) != shape_of(box) and (local.numel() or volume(box)):
        raise InputError(
            f"device {here.device} has {box} of the tensor, a block of {shape_of(box)}, not one of "
            f"shape {tuple(local.shape)}"
        )
    return cast("Tensor", _Moved.apply(local.reshape(shape_of(box)), way, here))


class _Moved(torch.autograd.Function):
    """Moves a block; its gradient moves back."""

    @staticmethod
    def forward(ctx: Any, local: Tensor, way: Redistribution, here: _Ranks) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx.way, ctx.here = way, here
        blocks = {box_on(way.mesh, way.source.held.cut, here.device): local.detach()}
        for phase in (phase for step in way.steps for phase in step.phases):
            received = _exchanged(phase.exchange(here.device), blocks, local, here)
            if phase.reduces:
                blocks = _reduced(phase, blocks, received, local, here.device, way.source.reduce_op)
            else:
                blocks = _assembled(phase, blocks, received, local, here.device)
        [moved] = blocks.values()
        return moved.clone(memory_format=torch.contiguous_format)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        way: Redistribution = ctx.way
        reduced = way.source.held.pending & ~way.target.held.pending
        op = way.source.reduce_op
        if reduced and op not in ("sum", "avg"):
            raise InputError(f"a reduction by {op!r} has no gradient here")
        # What is pending has, in each of its parts, the gradient of the whole.
        back = GivenLayout(Held(way.target.held.cut)), GivenLayout(Held(way.source.held.cut))
        moved = _moved(find(way.labels, way.shape, way.dtype, way.mesh, back), gradient, ctx.here)
        parts = parts_of(way.mesh, reduced) if op == "avg" and ctx.here.is_local else 1
        return moved / parts if parts > 1 else moved, None, None


_COMBINE: dict[str, Callable[[Tensor], Tensor]] = {
    "sum": lambda parts: parts.sum(0, dtype=parts.dtype),
    "avg": lambda parts: parts.mean(0),
    "product": lambda parts: parts.prod(0, dtype=parts.dtype),
    "max": lambda parts: parts.amax(0),
    "min": lambda parts: parts.amin(0),
}
Blocks = dict[Box, Tensor]
Received = list[tuple[Transfer, Tensor]]


def _exchanged(own: Exchange, blocks: Blocks, like: Tensor, here: _Ranks) -> Received:
    """Send blocks and receive others; all that two devices send each other is one message."""
    coming, going = _by_peer(own.receives), _by_peer(own.sends)
    buffers = {
        peer: like.new_empty(sum(volume(each.box) for each in parts))
        for peer, parts in coming.items()
    }
    sends = {
        peer: torch.cat([_block(blocks, each.box).reshape(-1) for each in parts])
        for peer, parts in going.items()
    }
    operations = [
        dist.P2POp(how, as_bytes(flat), here.ranks[peer], here.group)
        for how, flats in ((dist.irecv, buffers), (dist.isend, sends))
        for peer, flat in flats.items()
    ]
    for work in dist.batch_isend_irecv(operations) if operations else ():
        work.wait()
    received: Received = []
    for peer, parts in coming.items():
        flats = torch.split(buffers[peer], [volume(each.box) for each in parts])
        received += [(e, f.reshape(shape_of(e.box))) for e, f in zip(parts, flats, strict=True)]
    return received


def _by_peer(transfers: Sequence[Transfer]) -> dict[int, list[Transfer]]:
    """Transfers of each peer, in an order on which both ends agree."""
    by_peer: defaultdict[int, list[Transfer]] = defaultdict(list)
    for each in sorted(transfers, key=lambda each: (each.peer, each.box)):
        by_peer[each.peer].append(each)
    return by_peer


def _around(blocks: Blocks, box: Box) -> Box | None:
    """The block here that another lies inside; None if there is none."""
    return next((name for name in blocks if volume(name) and inside(box, name)), None)


def _block(blocks: Blocks, box: Box) -> Tensor:
    """A block that lies inside one of those that are here."""
    around = _around(blocks, box)
    if around is None:
        raise RunError(f"device has no block around {show_box(box)}")
    return blocks[around][within(box, around)]


def _reduced(
    phase: Phase, blocks: Blocks, received: Received, like: Tensor, device: int, op: str | None
) -> Blocks:
    """The blocks that this device reduces, their parts combined in the order of devices."""
    after: Blocks = {}
    for box in phase.boxes(device):
        if not volume(box):
            after[box] = like.new_empty(shape_of(box))
            continue
        parts = {each.peer: part for each, part in received if each.box == box}
        parts[device] = _block(blocks, box)
        after[box] = _COMBINE[op or "sum"](torch.stack([parts[peer] for peer in sorted(parts)]))
    return after


def _assembled(phase: Phase, blocks: Blocks, got: Received, like: Tensor, device: int) -> Blocks:
    """The block that this device wants, of what it had and received."""
    [box] = phase.boxes(device)
    if volume(box) and _around(blocks, box) is not None:
        return {box: _block(blocks, box)}
    made = like.new_empty(shape_of(box))
    kept = [(each, _block(blocks, each.box)) for each in phase.exchange(device).kept]
    for each, part in (*kept, *got):
        made[within(each.box, box)] = part
    return {box: made}
