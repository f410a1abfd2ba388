"""Distances of all pairs of rows on a GPU: generated kernels against torch.cdist and broadcasting.

Every configuration is tried, then the fastest takes turns with its peers; times are medians by CUDA
events, with the least and the most. The ceiling is what the card's float32 lanes allow at its
highest clock: two instructions for each point. Broadcasting is timed on some of the rows.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from statistics import median

import torch

from eindecomp.lang.dtypes import dtype
from eindecomp.lang.einsum import EinSum
from eindecomp.lang.monoid import MAX, SUM, Monoid
from eindecomp.lang.scalar import Arg, Expr, call

Run = Callable[[], object]
F4 = dtype("float32")
LANES = 128  # float32 lanes of a multiprocessor, Hopper's and those before it
GAP = call("sub", Arg(0), Arg(1))
CASES: dict[str, tuple[Expr, Monoid]] = {
    "L-infinity": (call("abs", GAP), MAX),
    "squared L2": (call("pow", GAP, 2), SUM),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=8192, help="rows of both matrices, and columns")
    parser.add_argument("--quick", action="store_true", help="fewer configurations and rounds")
    given = parser.parse_args()
    if not torch.cuda.is_available():
        print("no CUDA device: nothing to measure")
        return 0
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, size {given.size}")
    for name in CASES:
        measure(name, given.size, given.quick)
    return 0


def measure(name: str, size: int, quick: bool) -> None:
    from eindecomp.kernels.torch.generated.configs import LARGE
    from eindecomp.kernels.torch.generated.join import fused_join

    expr, agg = CASES[name]
    op = EinSum((("i", "k"), ("j", "k")), ("i", "j"), expr, agg)
    join = fused_join(op, (F4, F4), F4)
    assert join is not None
    torch.manual_seed(0)
    a, b = (torch.randn(size, size, device="cuda") for _ in range(2))
    out = torch.empty(size, size, device="cuda")
    ceiling = ceiling_of(size)
    print(f"\n{name}: ceiling {ceiling:.2f} ms at {top_clock():.0f} MHz")
    best = try_all(
        {
            str(way): lambda way=way: join.run([a, b], [out], partial=False, config=way)
            for way in LARGE[: 6 if quick else None]
        },
        lambda: check(name, a, b, out),
        ceiling,
    )
    peers = peers_of(name, a, b)
    rows = min(64, size)
    peers[f"broadcasting {rows} rows"] = lambda: broadcast(name, a[:rows], b)
    times = interleave({"generated": best, **peers}, 3 if quick else 7)
    own = median(times["generated"])
    for who, found in times.items():
        scale = size / rows if who.startswith("broadcasting") else 1
        spread = f"{scale * min(found):.2f} to {scale * max(found):.2f}"
        ratio = scale * median(found) / own
        note = " (scaled to all)" if scale > 1 else ""
        print(f"  {who:34} {scale * median(found):10.2f} ms ({spread}) {ratio:8.2f}x{note}")
    print(f"  generated takes {own / ceiling:.2f} times the ceiling")


def try_all(ways: dict[str, Run], checked: Run, ceiling: float) -> Run:
    """Print the time of every configuration; the fastest of those that give the right result."""
    times: dict[str, float] = {}
    for name, run in ways.items():
        try:
            run()
            checked()
            times[name] = min(milliseconds(run) for _ in range(3))
            print(f"  {name:62} {times[name]:9.2f} ms  {times[name] / ceiling:5.2f} x", flush=True)
        except Exception as error:
            print(f"  {name:62} fails: {type(error).__name__}: {str(error)[:200]}", flush=True)
    winner = min(times, key=times.__getitem__)
    print(f"  fastest: {winner}")
    return ways[winner]


def check(name: str, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
    """Compare entries of some rows and columns, the last ones among them, with float64."""
    generator = torch.Generator(device="cuda").manual_seed(1)
    last = torch.tensor([0, len(a) - 1], device="cuda")
    picks = [
        torch.cat([torch.randint(len(m), (30,), device="cuda", generator=generator), last])
        for m in (a, b)
    ]
    gap = a[picks[0]].double()[:, None] - b[picks[1]].double()
    exact = gap.abs().amax(2) if name == "L-infinity" else gap.square().sum(2)
    found = out[picks[0]][:, picks[1]].double()
    torch.testing.assert_close(found, exact, rtol=2e-5, atol=1e-6)
    out.zero_()


def peers_of(name: str, a: torch.Tensor, b: torch.Tensor) -> dict[str, Run]:
    if name == "L-infinity":
        return {"torch.cdist": lambda: torch.cdist(a, b, p=float("inf"))}
    exact, by_product = "donot_use_mm_for_euclid_dist", "use_mm_for_euclid_dist"
    return {
        "torch.cdist": lambda: torch.cdist(a, b, compute_mode=exact).square_(),
        "torch.cdist by a matrix product": lambda: torch.cdist(
            a, b, compute_mode=by_product
        ).square_(),
    }


def broadcast(name: str, a: torch.Tensor, b: torch.Tensor) -> None:
    for rows in a.split(4):
        gap = rows[:, None] - b
        _ = gap.abs().amax(2) if name == "L-infinity" else gap.square().sum(2)


def interleave(runs: dict[str, Run], rounds: int) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {who: [] for who in runs}
    for turn in range(rounds + 1):  # the first round warms up
        for who, run in runs.items():
            found = milliseconds(run)
            if turn:
                times[who].append(found)
    return times


def milliseconds(run: Run) -> float:
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    run()
    stop.record()
    stop.synchronize()
    return start.elapsed_time(stop)


def ceiling_of(size: int) -> float:
    """Milliseconds of two instructions for each point on all lanes."""
    lanes = LANES * torch.cuda.get_device_properties(0).multi_processor_count
    return 2e3 * size**3 / (lanes * top_clock() * 1e6)


def top_clock() -> float:
    """The highest clock of the multiprocessors, in MHz."""
    command = ["nvidia-smi", "--query-gpu=clocks.max.sm", "--format=csv,noheader,nounits"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
        return float(found.stdout.split()[0])
    except (OSError, ValueError, IndexError, subprocess.CalledProcessError):
        return 1980.0


if __name__ == "__main__":
    sys.exit(main())
