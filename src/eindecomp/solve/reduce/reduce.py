"""Makes a core smaller without changing its optimum, and lifts its choices back.

Each round drops impossible choices and dominated ones (`drop_choices.py`) and contracts variables
that a neighbour determines (`contract.py`): in compiled programs those are most, because an
element-wise operation takes its operand's layout. When that no longer helps, redundant time steps
are dropped (`usage_steps.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from eindecomp.errors import InfeasibleError
from eindecomp.solve.clock import planning_time
from eindecomp.solve.problem.arc_graph import arc_graph_of
from eindecomp.solve.problem.arrays import Ints
from eindecomp.solve.problem.core import Core
from eindecomp.solve.reduce.contract import determined_variables
from eindecomp.solve.reduce.drop_choices import drop_dominated, make_arc_consistent
from eindecomp.solve.reduce.substitute import Substitution, keep_choices, substitute
from eindecomp.solve.reduce.usage_steps import compress_steps, prune_steps


@dataclass(frozen=True, slots=True, eq=False)
class Reduced:
    """A smaller core, and the steps that led to it."""

    core: Core
    steps: tuple[Substitution, ...]

    def lift(self, choice: Ints) -> Ints:
        """The choice of the original core, given one of the reduced core."""
        for sub in reversed(self.steps):
            choice = sub.lift(choice)
        return choice

    def push(self, choice: Ints) -> Ints:
        """The choice of the reduced core that comes closest to one of the original core."""
        for step in self.steps:
            choice = step.push(choice)
        return choice


def reduce_core(core: Core, deadline: float = np.inf, rounds: int = 50) -> Reduced:
    """Reduce until nothing changes or time is up; a reduction cut short is valid too.

    Raises `InfeasibleError` if a variable has no choice left.
    """
    core, first = _merge_edges(compress_steps(core))
    steps: list[Substitution] = [first]
    for turn in range(rounds):
        # The first round is cheap, and without it the search does not get to a first choice.
        if turn > 0 and planning_time() > deadline:
            break
        core, pruned = _prune(core, steps)
        core, contracted = _contract(core, steps)
        if pruned or contracted:
            core = compress_steps(core)
            continue
        # With fewer steps, more choices are dominated.
        steps_before = core.capacity.size
        core = prune_steps(core)
        if core.capacity.size == steps_before:
            break
    return Reduced(core, tuple(steps))


def _merge_edges(core: Core) -> tuple[Core, Substitution]:
    """Merge parallel edges and self-loops, by substituting every variable for itself."""
    sub = keep_choices(core, np.ones(core.unary.size, dtype=bool))
    return substitute(core, sub), sub


def _prune(core: Core, steps: list[Substitution]) -> tuple[Core, bool]:
    """Drop impossible and dominated choices; whether there were any."""
    graph = arc_graph_of(core)
    keep = np.isfinite(core.unary)
    if not make_arc_consistent(graph, keep):
        raise InfeasibleError("infinite costs rule out every choice")
    drop_dominated(graph, keep)
    if keep.all() and (core.domains > 1).all():
        return core, False
    sub = keep_choices(core, keep)
    steps.append(sub)
    return substitute(core, sub), True


def _contract(core: Core, steps: list[Substitution]) -> tuple[Core, bool]:
    """Contract determined variables; whether there were any."""
    sub = determined_variables(core)
    if sub is None:
        return core, False
    steps.append(sub)
    return substitute(core, sub), True
