"""`plan.verify_torch(module, …)`: what DTensor moves when a module runs as a plan says.

The module runs on one device of a pretended group, on tensors without elements: nothing is computed
and nothing is sent, but DTensor issues the collectives of its operators and of the moves in
between, and these are counted beside what was planned.
"""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from traceback import walk_stack
from typing import Any

import torch.distributed as dist
from torch import fx, nn
from torch._C._distributed_c10d import (
    _resolve_process_group,  # pyright: ignore[reportPrivateUsage] - the only way from name to group
)
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from eindecomp.errors import PlanError, RunError
from eindecomp.frontends.draft import View
from eindecomp.frontends.placements import coarsest, of_shape
from eindecomp.frontends.torch.applying import Applied
from eindecomp.frontends.torch.dtensor import make_mesh, to_dtensor
from eindecomp.frontends.torch.exporting import set_otherwise
from eindecomp.frontends.torch.wishes import Wish, imported_names
from eindecomp.planner.comparison import Verification, Verified, in_group, in_words
from eindecomp.planner.plan import Plan
from eindecomp.tra.program.make import program_of

_LOGGERS = ("torch.distributed.tensor._redistribute", "torch.distributed.tensor._collective_utils")
"""They advise to flatten meshes, which changes no bytes."""


def verify_module(
    plan: Plan,
    module: nn.Module,
    example_inputs: object,
    example_kwargs: Mapping[str, Any] | None,
    device: str,
    shape: Sequence[int] | None,
) -> Verification:
    """Count what the module moves under the plan's placements, operator by operator.

    The devices are GPUs (NCCL) or, "cpu", CPUs (gloo). `shape` is that of the device mesh: by
    default the fewest dimensions that the plan allows.
    """
    if device not in ("cuda", "cpu"):
        raise PlanError(f"the device is 'cuda' or 'cpu', not {device!r}")
    on = coarsest(plan) if shape is None else of_shape(plan, shape)
    quiet = [(logging.getLogger(name), "disabled", True) for name in _LOGGERS]
    with pretended_group(plan.devices), set_otherwise(quiet):
        placed = to_dtensor(plan, make_mesh(plan, on, device))
        applied = placed.apply(module, example_inputs, example_kwargs, device="meta")
        rows = _Rows(plan, applied)
        with Recorder() as recorder:

            def listen(wish: Wish | None, node: fx.Node, why: str) -> None:
                rows.note(wish, node, recorder.take(), why)

            applied.listener = listen
            args, kwargs = applied.imported.arguments
            applied(*args, **kwargs)
    return Verification(rows.ended(), on.mesh.axes)


@contextmanager
def pretended_group(devices: int) -> Generator[None]:
    """A process group of which this process is the first and the others are not there."""
    if dist.is_initialized():
        raise PlanError(
            "this process belongs to a process group already: verify where it does not, or after "
            "torch.distributed.destroy_process_group()"
        )
    told = sys.excepthook  # which a process group changes, to name its rank
    dist.init_process_group("fake", rank=0, world_size=devices)
    try:
        yield
    finally:
        dist.destroy_process_group()
        sys.excepthook = told


class _Rows:
    """What was moved for each vertex of the plan.

    An operator may be several vertices, such as those of an attention: they share a row.
    """

    def __init__(self, plan: Plan, applied: Applied) -> None:
        self.imported = applied.imported
        self.planned = dict(program_of(plan, turns="none").bytes_by_vertex)
        rows = {name: name for name in self.planned}
        for made in applied.imported.made.values():
            kept = [name for name in made if name in self.planned]
            rows |= dict.fromkeys(made, kept[-1] if kept else "")
        known = imported_names(plan.graph, applied.imported.graph)
        self.row_of = rows | {name: rows[known[name]] or name for name in self.planned}
        self.moved: dict[str, list[Collective]] = {}
        self.reasons: dict[str, list[str]] = {}
        self.sizes: dict[str, set[int]] = {}

    def note(self, wish: Wish | None, node: fx.Node, moved: Sequence[Collective], why: str) -> None:
        """Add what was moved for an operator."""
        view = self.imported.views.get(node)
        name = wish.vertex if wish is not None else ""
        if not name and isinstance(view, View):
            name = view.vertex
        row = self.row_of.get(name) or name or node.name
        self.moved.setdefault(row, []).extend(moved)
        if not why and moved:
            tensors = [each.meta.get("val") for each in (node, *node.all_input_nodes)]
            self.sizes.setdefault(row, set()).update(
                size for tensor in tensors for size in getattr(tensor, "shape", ())
            )
            why = f"DTensor's own way for {node.target}"
            if any(each.is_fallback for each in moved):
                why = "gloo has no all-to-all: the tensor is gathered"
        if why:
            self.reasons.setdefault(row, []).append(why)

    def ended(self) -> tuple[Verified, ...]:
        """One row for each operator, and for each vertex that is no part of one."""
        planned: Counter[str] = Counter()
        for name, nbytes in self.planned.items():
            planned[self.row_of[name]] += nbytes
        names = dict.fromkeys([*planned, *(row for row, own in self.moved.items() if own)])
        return tuple(self._row(name, planned[name]) for name in names)

    def _row(self, name: str, planned: int) -> Verified:
        moved = self.moved.get(name, [])
        counted = sum(each.nbytes for each in moved)
        reasons = self.reasons.get(name) or ["what was planned here is moved with another operator"]
        if any(
            counted * size == planned * -(-size // each.devices) * each.devices
            for size in self.sizes.get(name, ())
            for each in moved
        ):
            reasons = ["uneven pieces are padded"]
        told = "; ".join(dict.fromkeys(reasons)) if planned != counted else ""
        return Verified(name, planned, counted, in_words(Counter(map(str, moved))), told)


_KINDS = {
    "all_gather_into_tensor": "all-gather",
    "reduce_scatter_tensor": "reduce-scatter",
    "all_reduce": "all-reduce",
    "all_to_all_single": "all-to-all",
    "shard_dim_alltoall": "all-to-all",
    "broadcast": "broadcast",
}
"""The names of functional collectives, without the endings of variants."""
_SPACES = ("c10d", "c10d_functional", "_c10d_functional", "_c10d_functional_autograd", "_dtensor")
_STILL = ("wait_tensor", "_wrap_tensor_autograd", "mesh_get_process_group", "barrier")
"""Operators of the same families that move nothing."""


@dataclass(frozen=True, slots=True)
class Collective:
    """A collective that all devices take part in, in groups of `devices`."""

    kind: str
    devices: int
    nbytes: int
    """What all devices of all groups receive together."""
    is_fallback: bool = False
    """Whether DTensor gathers where it would exchange parts with a library that can."""

    def __str__(self) -> str:
        return f"{self.kind} of {self.devices}"


class Recorder(TorchDispatchMode):
    """Records every functional collective of this process while it is entered.

    All devices are taken to do what this one does, which DTensor ensures by padding uneven pieces.
    An all-reduce is counted as a reduce-scatter and an all-gather.
    """

    def __init__(self) -> None:
        super().__init__()
        self.collectives: list[Collective] = []

    def take(self) -> tuple[Collective, ...]:
        """The collectives recorded since the last call."""
        taken = tuple(self.collectives)
        self.collectives.clear()
        return taken

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if DTensor in types:
            return NotImplemented  # which does what it does to local tensors, seen here after
        result = func(*args, **(kwargs or {}))
        space, name = func._schema.name.split("::")
        if space in _SPACES and name not in _STILL:
            self.collectives.append(_collective(space, name, args, result))
        return result


def _collective(space: str, name: str, args: Any, result: Any) -> Collective:
    kind = _KINDS.get(name.removesuffix("_").removesuffix("_coalesced"))
    if space == "c10d" or kind is None:
        raise RunError(f"cannot count what the collective {space}::{name} moves")
    group = args[-1] if hasattr(args[-1], "size") else _resolve_process_group(args[-1])
    size = sum(each.nbytes for each in tree_leaves(result))
    received = dist.get_world_size() // group.size() * in_group(kind, group.size(), size)
    # What DTensor does shows nowhere else than in the functions that are running.
    running = (frame.f_code.co_name for frame, _ in walk_stack(None))
    is_fallback = kind == "all-gather" and "shard_dim_alltoall" in running
    return Collective(kind, group.size(), received, is_fallback)
