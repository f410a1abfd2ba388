"""How long graphs of 100,000 vertices take to build, verify, print and rewrite.

Run by `make bench`. Each figure is the best of three, beside its ratio to a yardstick from the same
run: building as many nodes in networkx, a graph library that checks nothing.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable

import networkx

import eindecomp as ed
from eindecomp.graph.rewrites.rewrite import PASSES

VERTICES = 100_000
REPEATS = 3


def chain(count: int) -> ed.Graph:
    """Layers of matrix products and maps, as deep as there are vertices."""
    g = ed.Graph()
    x, w = g.input("X", {"i": 8, "j": 8}), g.input("W", {"j": 8, "k": 8})
    for _ in range(count // 2):
        x = g.einsum("ij,jk->ik", x, w)
        x = g.einsum("ij->ij", x, join="relu(x)")
    g.output(x)
    return g


def plain(count: int) -> networkx.DiGraph:
    g = networkx.DiGraph()
    for k in range(count):
        g.add_node(f"T_{k}", op="relu", shape=(8, 8))
        g.add_edge(f"T_{k - 1}", f"T_{k}")
    return g


def best(run: Callable[[], object]) -> tuple[float, float]:
    """The best and the worst of several runs, in seconds."""
    times: list[float] = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        run()
        times.append(time.perf_counter() - started)
    return min(times), max(times)


def import_seconds(module: str) -> tuple[float, float]:
    return best(lambda: subprocess.run([sys.executable, "-c", f"import {module}"], check=True))  # noqa: S603


def main() -> None:
    yardstick, _ = best(lambda: plain(VERTICES))
    graph = chain(VERTICES)
    text = str(chain(VERTICES // 10))
    print(f"{'':24}{'best':>8}{'worst':>8}   ratio to networkx building as many nodes")
    rows: list[tuple[str, Callable[[], object]]] = [
        ("build", lambda: chain(VERTICES)),
        ("verify", graph.verify),
        ("print", lambda: str(graph)),
        ("hash", lambda: hash(graph)),
        ("parse, a tenth of it", lambda: ed.parse(text)),
        *((step.__name__, lambda step=step: step(graph)) for step in PASSES),
    ]
    for name, run in rows:
        low, high = best(run)
        print(f"{name:24}{low:7.2f}s{high:7.2f}s {low / yardstick:7.1f}")
    low, high = import_seconds("eindecomp")
    numpy, _ = import_seconds("numpy")
    print(f"\n{'import eindecomp':24}{low:7.2f}s{high:7.2f}s {low / numpy:7.1f} × import numpy")


if __name__ == "__main__":
    main()
