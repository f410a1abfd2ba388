"""The solver: minimum-cost choices with a proved bound, optionally within a usage limit."""

from eindecomp.errors import InfeasibleError, ProblemError, UnsolvedError
from eindecomp.solve.contest import parse_contest, read_contest, solution_json
from eindecomp.solve.minimize import minimize
from eindecomp.solve.problem.arrays import INFINITE, Factor
from eindecomp.solve.problem.problem import Problem
from eindecomp.solve.run import Progress, Solution

__all__ = [
    "INFINITE", "Factor", "InfeasibleError", "Problem", "ProblemError", "Progress", "Solution",
    "UnsolvedError", "minimize", "parse_contest", "read_contest", "solution_json",
]  # fmt: skip
