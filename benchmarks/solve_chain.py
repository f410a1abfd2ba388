"""Folding: a layer of 40 variables with 64 choices each, repeated 1,000 times, solved exactly.

Prints the seconds of the best and the worst of three runs for 10, 100 and 1,000 layers: what
folding saves is that they hardly grow.
"""

from __future__ import annotations

import numpy as np

from eindecomp.solve import Problem, minimize

REPEATS = 3


def chain(layers: int, width: int = 40, choices: int = 64) -> Problem:
    """Equal layers with skip edges inside, one edge from each to the next."""
    rng = np.random.default_rng(0)
    inner = [(i, i + 1) for i in range(width - 1)] + [(i, i + 3) for i in range(0, width - 3, 2)]
    tables = [rng.integers(0, 1000, (choices, choices)) for _ in range(len(inner) + 1)]
    unary = [rng.integers(0, 100, choices) for _ in range(width)]
    edges: list[tuple[int, int]] = []
    table_of: list[int] = []
    for at in range(0, layers * width, width):
        edges += [(at + a, at + b) for a, b in inner]
        table_of += range(len(inner))
        if at + width < layers * width:
            edges.append((at + width - 1, at + width))
            table_of.append(len(inner))
    return Problem.of(unary * layers, edges, tables, table_of=table_of)


def main() -> None:
    print("layers  variables  cost          proved  best s  worst s")
    for layers in (10, 100, 1000):
        problem = chain(layers)
        runs = [minimize(problem) for _ in range(REPEATS)]
        found = runs[0]
        assert found.cost == problem.cost_of(found.choice)
        seconds = [run.seconds for run in runs]
        print(
            f"{layers:6}  {problem.size:9}  {found.cost:<12,}  {'yes' if found.optimal else 'no':6}"
            f"  {min(seconds):6.2f}  {max(seconds):7.2f}"
        )


if __name__ == "__main__":
    main()
