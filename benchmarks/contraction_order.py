"""Bytes of contraction orders: the one chosen with the decomposition against every fixed order.

Weak scaling: the first tensor grows with the devices, so that each holds as much of it. Every
input is stored once over all devices ("sharded"), or available everywhere ("free"). "usual" is the
order of the fewest operations. Fixed orders are pairwise, within 1.2 × the least operations, each
planned like any graph: the table has the best and the worst of them. MTTKRP is planned in the first
and the last mode; all modes have equal sizes, so those between cost the same.

    python benchmarks/contraction_order.py [sharded] [free] [devices ...]

Without arguments, sharded inputs on 8, 64 and 512 devices: a quarter of an hour.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from time import perf_counter

import eindecomp as ed
from eindecomp.planner.contraction_order import Contractions

RANK = 24
DEVICES = (8, 64, 512)
WORK = 1.2
TIME = 10.0  # seconds for each plan
MOST_FIXED, A_LOOK = 8, 1.0  # fixed orders that are planned, and for how long; the best of them
# is planned again, for as long as ours


@dataclass(frozen=True)
class Case:
    """A contraction: a spec, the sizes of its labels, and those that grow with the devices."""

    name: str
    spec: str
    sizes: dict[str, int]
    grown: str
    """The labels of the first tensor, which grow together."""

    def graph(self, devices: int) -> ed.Graph:
        """The contraction for so many devices, as one n-ary sum."""
        grown = devices ** (1 / len(self.grown)) if self.grown else 1
        sizes = {
            label: even(size * grown) if label in self.grown else size
            for label, size in self.sizes.items()
        }
        operands = self.spec.partition("->")[0].split(",")
        graph = ed.Graph()
        names = [
            graph.input(f"T{k}", {label: sizes[label] for label in labels}, "float64").name
            for k, labels in enumerate(operands)
        ]
        graph.output(graph.einsum(self.spec, *names, name="Z"))
        return graph


def even(size: float) -> int:
    """The nearest multiple of 8, so that cuts are even."""
    return max(8, 8 * round(size / 8))


def chains() -> list[Case]:
    """Products of 3 to 6 matrices, long and short sides in turn, and ever shorter ones."""
    cases: list[Case] = []
    for count in range(3, 7):
        labels = "abcdefg"[: count + 1]
        spec = ",".join(labels[k : k + 2] for k in range(count)) + f"->{labels[0]}{labels[-1]}"
        turned = {label: (1024, 128)[k % 2] for k, label in enumerate(labels)}
        tapered = {label: 4096 >> k for k, label in enumerate(labels)}
        cases.append(Case(f"chain of {count}, alternating", spec, turned, labels[:2]))
        cases.append(Case(f"chain of {count}, tapered", spec, tapered, labels[:2]))
    return cases


def tensors(order: int, side: int) -> list[Case]:
    """MTTKRP in the first and the last mode."""
    modes = "ijklm"[:order]
    sizes = dict.fromkeys(modes, side) | {"r": RANK}
    cases: list[Case] = []
    for mode in (modes[0], modes[-1]):
        others = [label for label in modes if label != mode]
        spec = f"{modes},{','.join(label + 'r' for label in others)}->{mode}r"
        cases.append(Case(f"MTTKRP order {order}, mode {mode}", spec, sizes, modes))
    return cases


def networks() -> list[Case]:
    """TTMc in the first mode, a Tucker reconstruction, and tensor trains."""
    modes, ranks = "ijklm", "abcde"
    full = dict.fromkeys(modes, 64) | dict.fromkeys(ranks, RANK)
    ttmc = f"{modes},{','.join(m + r for m, r in zip(modes[1:], ranks[1:], strict=True))}->ibcde"
    three = dict.fromkeys("ijk", 1024) | dict.fromkeys("abcde", RANK)
    four = dict.fromkeys("ijkl", 128) | dict.fromkeys("abc", RANK)
    return [
        Case("TTMc order 5, mode i", ttmc, full, modes),
        Case("Tucker core to full, order 3", "abc,ia,jb,kc->ijk", three, "ijk"),
        Case("full to Tucker core, order 3", "ijk,ia,jb,kc->abc", three, "ijk"),
        Case("tensor train to full, order 4", "ia,ajb,bkc,cl->ijkl", four, "ijkl"),
        Case("product of tensor trains", "ia,ajb,bk,id,dje,ek->", three, "ijk"),
    ]


def fixed(graph: ed.Graph, devices: int, inputs: str) -> tuple[float, float, int]:
    """The least and the most that pairwise orders cost, and how many orders there are."""
    contractions = Contractions.of(graph, ed.rewrite(graph), (), WORK)
    [own] = contractions.orderings
    plans: list[ed.Plan] = []
    pairwise = [order for order in own.orders if len(order) == len(own.contraction.inputs) - 1]
    for order in pairwise[:MOST_FIXED]:
        made, _ = contractions.ordered({own.name: order})
        plans.append(ed.plan(made, devices, inputs=inputs, rewrite=False, time_limit=A_LOOK))
    best = min(plans, key=lambda plan: plan.cost)
    if best.gap:
        best = ed.plan(best.graph, devices, inputs=inputs, rewrite=False, time_limit=TIME)
    return best.cost, max(plan.cost for plan in plans), own.count


def shape(plan: ed.Plan) -> str:
    """How many operands each vertex of a plan has."""
    return "·".join(str(len(v.inputs)) for v in plan.graph.vertices.values() if v.inputs)


def main() -> None:
    args = sys.argv[1:]
    ways = [arg for arg in args if not arg.isdecimal()] or ["sharded"]
    counts = [int(arg) for arg in args if arg.isdecimal()] or list(DEVICES)
    cases = [*chains(), *tensors(3, 1024), *tensors(5, 64), *networks()]
    for inputs in ways:
        print(f"\ninputs {inputs}: bytes in MiB; operands of each vertex of the chosen order\n")
        print(
            f"{'contraction':32} {'p':>4} {'chosen':>10} {'usual':>10} {'ratio':>7} "
            f"{'best pair':>10} {'worst pair':>11} {'orders':>6} {'gap':>6} {'s':>6}  vertices"
        )
        for case in cases:
            for devices in counts:
                print(row(case, devices, inputs), flush=True)


def row(case: Case, devices: int, inputs: str) -> str:
    """One line of the table."""
    graph = case.graph(devices)
    usual = ed.plan(graph, devices, inputs=inputs, work=None, time_limit=TIME)
    started = perf_counter()
    plan = ed.plan(graph, devices, inputs=inputs, work=WORK, time_limit=TIME)
    seconds = perf_counter() - started
    best, worst, count = fixed(graph, devices, inputs)
    ratio = f"{usual.cost / plan.cost:.2f}" if plan.cost else "inf" if usual.cost else "1.00"
    return (
        f"{case.name:32} {devices:4} {plan.cost / 2**20:10.2f} {usual.cost / 2**20:10.2f} "
        f"{ratio:>7} {best / 2**20:10.2f} {worst / 2**20:11.2f} {count:6} {plan.gap:6.1%} "
        f"{seconds:6.2f}  {shape(plan)}"
    )


if __name__ == "__main__":
    main()
