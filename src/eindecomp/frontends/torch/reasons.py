"""Why DTensor moves more than a plan: what it cannot say, and how its collectives go about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eindecomp.frontends.layouts import widened
from eindecomp.frontends.placed_plan import reduce_op_of
from eindecomp.graph.work import state_bytes
from eindecomp.layout.cut import pieces_by
from eindecomp.tra.program.steps import AllGather, Compute, Move, ReduceScatter

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eindecomp.frontends.torch.carry_out import Running
    from eindecomp.frontends.torch.collectives import Collective
    from eindecomp.layout.cut import Cut
    from eindecomp.tra.program.steps import Step


NO_EXCHANGE = "gloo has no all-to-all: the tensor is gathered"


def reason(running: Running, step: Step, planned: int, collectives: Sequence[Collective]) -> str:
    """Why the collectives of a step do not move what was planned."""
    reduces = isinstance(step, ReduceScatter | AllGather)
    if reduces and reduce_op_of(running.plan.graph[step.vertex]) is None:
        return "DTensor cannot reduce by this aggregation: partial results are gathered"
    found = list(dict.fromkeys(_causes(running, step, collectives)))
    return ", ".join(found) or _told(step, planned, collectives)


def _causes(running: Running, step: Step, collectives: Sequence[Collective]) -> Iterator[str]:
    graph, mesh = running.plan.graph, running.on.mesh
    cuts = _cuts(running, step)
    for tensor, cut in cuts:
        if widened(cut, graph[tensor].shape) != cut:
            yield f"a part of {tensor} is wanted that no placement can say: more of it is fetched"
    kinds = {each.kind for each in collectives}
    if any(each.is_fallback for each in collectives):
        yield NO_EXCHANGE
    if any(list(span.axes) != sorted(span.axes) for _, cut in cuts for span in cut):
        yield "axes are not in mesh order: strided shards are gathered one axis after another"
    if any(span.units % pieces_by(mesh, span.axes) for _, cut in cuts for span in cut):
        yield "uneven pieces are padded"
    if isinstance(step, ReduceScatter | AllGather) and "all-reduce" in kinds:
        vertex = graph[step.vertex]
        if state_bytes(graph, vertex) != vertex.dtype.itemsize:
            yield f"partial results are all-reduced as they are, the plan gathers {vertex.dtype}"
        else:
            yield "partial results are all-reduced, one dimension of the mesh after another"


def _cuts(running: Running, step: Step) -> list[tuple[str, Cut]]:
    """The cuts between which a step moves tensors."""
    buffers, on = running.program.buffers, running.on
    match step:
        case Move() | ReduceScatter():
            ends = (buffers[step.source], buffers[step.into])
            return [(each.tensor, on.cut(each.tiling.cut)) for each in ends]
        case AllGather():
            return [(step.vertex, on.cut(buffers[step.buffer].tiling.cut))]
        case Compute():
            reads = (read for read in step.reads if read is not None)
            pairs = [(buffers[read.buffer], read.cut) for read in reads]
            return [
                (held.tensor, on.cut(cut)) for held, own in pairs for cut in (held.tiling.cut, own)
            ]
        case _:
            return []


def _told(step: Step, planned: int, collectives: Sequence[Collective]) -> str:
    """What DTensor does instead, where there is no more to say."""
    how = " and ".join(dict.fromkeys(str(each) for each in collectives)) or "nothing"
    what = (
        str(step.pattern) if isinstance(step, Move) else "reduction" if planned else "local block"
    )
    return f"planned as {what}, DTensor goes by {how}"
