"""Mixtures of experts: what our plans move, against the two all-to-alls that everybody does.

Top 2 of as many experts as devices, 32,768 tokens of 4,096 numbers, cut over all devices before and
after; no slot to spare. Of two all-to-alls, each moves all slots but those that stay on their
device. `grouped`: each device's tokens have slots of their own at every expert, and bytes are
exact. `together`: all tokens share slots; then `whole` moves blocks of tables, exactly so many
bytes, and `rows` only rows that are named, at most so many. Last, a small one is run by `apart`
with even routing, and what moved is set beside what two all-to-alls of its slots move.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from time import perf_counter

import numpy as np

import eindecomp as ed

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "gallery"))

import many_experts

TOKENS, WIDTH, HIDDEN, CHOSEN = 32_768, 4_096, 14_336, 2
GIB = 1 << 30


def all_to_alls(slots: int, width: int, devices: int) -> int:
    """The bytes of two all-to-alls of float32: there, and back."""
    return 2 * 4 * slots * width // devices * (devices - 1)


def planned(graph: ed.Graph, devices: int, label: str, lookups: str, seconds: float) -> ed.Plan:
    """Tokens are cut over all devices before and after; every device has the gate's weights."""
    pin = {"X": {label: devices}, "Y": {label: devices}, "G": {}}
    asked = {"inputs": "sharded", "lookups": lookups, "time_limit": seconds}
    return ed.plan(graph, devices, pin=pin, **asked)


def show_plans(devices: int, seconds: float) -> None:
    least = all_to_alls(TOKENS * CHOSEN, WIDTH, devices)
    each = TOKENS * CHOSEN // devices
    sizes = (TOKENS, WIDTH, HIDDEN, devices)
    grouped = many_experts.grouped(*sizes, each // devices, devices, CHOSEN)
    together = many_experts.together(*sizes, each, CHOSEN)
    print(f"{devices} devices: two all-to-alls {least / GIB:.3f} GiB")
    for name, graph, label, lookups in (
        ("grouped", grouped, "g", "whole"),
        ("together, whole", together, "n", "whole"),
        ("together, rows", together, "n", "rows"),
    ):
        start = perf_counter()
        plan = planned(graph, devices, label, lookups, seconds)
        most = "at most " if lookups == "rows" else ""
        print(
            f"  {name:<16}{most:>8}{plan.cost / GIB:.3f} GiB, {plan.cost / least:.3f} ×, "
            f"gap {plan.gap:.2%}, {perf_counter() - start:.1f} s"
        )


def show_runs(devices: int) -> None:
    """Tokens that ask for every expert equally often, computed by devices apart."""
    tokens, width, each = 32 * devices, 64, 64
    graph = many_experts.together(tokens, width, 256, devices, each, CHOSEN)
    plan = planned(graph, devices, "n", "rows", 45)
    rng = np.random.default_rng(0)
    first = np.arange(tokens) % devices
    wishes = np.zeros((tokens, width), np.float32)
    wishes[np.arange(tokens), first] = 2
    wishes[np.arange(tokens), (first + 1 + np.arange(tokens) // devices) % devices] += 1
    given = {v.name: rng.normal(size=v.shape).astype(np.float32) / 8 for v in graph.inputs}
    given |= {"X": wishes, "G": 9 * np.eye(width, devices, dtype=np.float32)}
    result = ed.run(plan, given, engine="apart")
    np.testing.assert_allclose(result["Y"], ed.evaluate(graph, given)["Y"], rtol=1e-3, atol=1e-3)
    least, moved = all_to_alls(tokens * CHOSEN, width, devices), result.stats.bytes_moved
    print(
        f"run on {devices} devices apart: {moved:,} bytes moved, at most {plan.cost:,} planned, "
        f"two all-to-alls {least:,}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-p", "--devices", type=int, nargs="+", default=[8, 64])
    parser.add_argument("--seconds", type=float, default=45, help="time limit of each plan")
    asked = parser.parse_args()
    for devices in asked.devices:
        show_plans(devices, asked.seconds)
    show_runs(8)


if __name__ == "__main__":
    main()
