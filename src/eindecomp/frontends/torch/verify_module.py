"""What DTensor moves when a module runs as a plan of its graph says, beside what was planned.

The module runs on one device of a pretended group, on tensors without elements; DTensor issues the
collectives of its operators and of the moves in between, and these are counted.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from eindecomp.frontends.placements import placed_plan
from eindecomp.frontends.torch.applying import Applied, apply
from eindecomp.frontends.torch.collectives import Recorder, row_of
from eindecomp.frontends.torch.verify import NO_EXCHANGE, pretended_mesh
from eindecomp.frontends.torch.wishes import imported_names
from eindecomp.frontends.views import View
from eindecomp.planner.comparison import Verification
from eindecomp.tra.program.make import program_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import fx, nn

    from eindecomp.frontends.torch.collectives import Collective
    from eindecomp.frontends.torch.wishes import Wish
    from eindecomp.planner.comparison import Verified
    from eindecomp.planner.plan import Plan


def verify_module(
    plan: Plan,
    module: nn.Module,
    example_inputs: object,
    example_kwargs: Mapping[str, Any] | None,
    device: str,
    shape: Sequence[int] | None,
) -> Verification:
    """Count what the module moves under the plan's placements, operator by operator."""
    with pretended_mesh(plan, device, shape) as (mesh, on):
        placed = placed_plan(plan, on)
        applied = apply(placed, mesh, module, example_inputs, example_kwargs, device="meta")
        rows = _Rows(plan, applied)
        with Recorder() as recorder:

            def listen(wish: Wish | None, node: fx.Node, why: str) -> None:
                rows.note(wish, node, recorder.take(), why)

            applied.listener = listen
            args, kwargs = applied.imported.arguments
            applied(*args, **kwargs)
    return Verification(rows.ended(), dict(zip(on.mesh.names, on.mesh.sizes, strict=True)))


class _Rows:
    """What was moved for each vertex of the plan.

    An operator may be several vertices, such as those of an attention: they share a row.
    """

    def __init__(self, plan: Plan, applied: Applied) -> None:
        self.imported = applied.imported
        self.planned = dict(program_of(plan).bytes_by_vertex)
        rows = {name: name for name in self.planned}
        for made in applied.imported.made.values():
            kept = [name for name in made if name in self.planned]
            rows |= dict.fromkeys(made, kept[-1] if kept else "")
        known = imported_names(plan.graph, applied.imported.graph)
        self.row_of = rows | {name: rows[known[name]] or name for name in self.planned}
        self.found: dict[str, list[Collective]] = {}
        self.reasons: dict[str, list[str]] = {}
        self.sizes: dict[str, set[int]] = {}

    def note(
        self, wish: Wish | None, node: fx.Node, collectives: tuple[Collective, ...], why: str
    ) -> None:
        """Add what was moved for an operator."""
        view = self.imported.views.get(node)
        name = wish.vertex if wish is not None else ""
        if not name and isinstance(view, View):
            name = view.vertex
        row = self.row_of.get(name) or name or node.name
        self.found.setdefault(row, []).extend(collectives)
        if why:
            self.reasons.setdefault(row, []).append(why)
        elif collectives:
            tensors = [each.meta.get("val") for each in (node, *node.all_input_nodes)]
            self.sizes.setdefault(row, set()).update(
                size for tensor in tensors for size in getattr(tensor, "shape", ())
            )
            self.reasons.setdefault(row, []).append(self._way(node, collectives))

    def _way(self, node: fx.Node, collectives: tuple[Collective, ...]) -> str:
        """What may make the collectives of an operator move another amount than was planned."""
        if any(each.is_fallback for each in collectives):
            return NO_EXCHANGE
        return f"DTensor's own way for {node.target}"

    def ended(self) -> tuple[Verified, ...]:
        """One row for each operator, and for each vertex that is no part of one."""
        planned: Counter[str] = Counter()
        for name, nbytes in self.planned.items():
            planned[self.row_of[name]] += nbytes
        return tuple(
            self._row(name, planned[name], self.found.get(name, []))
            for name in dict.fromkeys([*planned, *(row for row, own in self.found.items() if own)])
        )

    def _row(self, name: str, planned: int, moved: list[Collective]) -> Verified:
        counted = sum(each.nbytes for each in moved)
        told = self.reasons.get(name) or ["what was planned here is moved with another operator"]
        if any(
            counted * size == planned * -(-size // each.devices) * each.devices
            for size in self.sizes.get(name, ())
            for each in moved
        ):
            told = ["uneven pieces are padded"]
        return row_of(name, planned, moved, told if planned != counted else ())
