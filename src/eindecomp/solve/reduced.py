"""What `minimize` does where elimination at sight is too much: reduce, eliminate, search.

Loading this module loads the compiled loops.
"""

from __future__ import annotations

import numpy as np

from eindecomp.errors import InfeasibleError, UnsolvedError
from eindecomp.solve.best import Best
from eindecomp.solve.close import close_gap
from eindecomp.solve.core import Core, core_of
from eindecomp.solve.eliminate import eliminate
from eindecomp.solve.network import Network
from eindecomp.solve.pairwise import pairwise
from eindecomp.solve.problem import Ints, Problem
from eindecomp.solve.reduce import reduce_core
from eindecomp.solve.run import Lift, Run
from eindecomp.solve.solution import Solution
from eindecomp.solve.toulbar import race
from eindecomp.solve.warm_up import warm_up_reductions, warm_up_search


def minimize_reduced(run: Run, problem: Problem, unfold: Lift, method: str, seed: int) -> Solution:
    """Solve `problem`, whose choices `unfold` takes to those of the run's problem."""
    run.compile(warm_up_reductions)
    run.enter("reduce")
    flat, size = pairwise(problem)
    reduced = reduce_core(core_of(flat), run.deadline)
    core = reduced.core
    _look_at_capacity(run, core)

    def lift(choice: Ints) -> Ints:
        return unfold(reduced.lift(choice)[:size])

    if core.size == 0:
        run.offer(lift(np.zeros(0, dtype=np.int64)))
        return run.solution(proved=True)
    if method != "search" and core.item_var.size == 0:
        run.enter("eliminate")
        choice = eliminate(Network.of_core(core), run.deadline)
        if choice is not None:
            run.offer(lift(choice))
            return run.solution(proved=True)
    if method == "exact":
        raise _beyond_elimination(core)
    run.enter("search")
    run.compile(warm_up_search)
    return run.solution(_search(run, core, lift, seed))


def _search(run: Run, core: Core, lift: Lift, seed: int) -> bool:
    exact = run.problem.exact_in_floats
    with race(core, exact=exact) as rival:

        def rivals_choice() -> Ints | None:
            found = rival.result()
            return None if found is None else lift(found)

        best = Best(run.offer, run.raise_bound, exact, lift, rival=rivals_choice)
        return close_gap(core, best, run.deadline, seed)


def _look_at_capacity(run: Run, core: Core) -> None:
    """Note the tightest step; raise if there even the least usages exceed the limit."""
    if core.capacity.size == 0:
        return
    t = int(np.argmin(core.capacity))
    run.tightest = int(core.step[t])
    if core.capacity[t] < 0:
        excess = float(-core.capacity[t])
        message = f"time step {run.tightest} is over by at least {excess:g}"
        raise InfeasibleError(message, run.tightest, excess)


def _beyond_elimination(core: Core) -> UnsolvedError:
    if core.item_var.size:
        return UnsolvedError("exact elimination takes no usage limit that can bind")
    return UnsolvedError("exact elimination would need tables beyond the cap")
