"""Every configuration of the generated kernels for distances of all pairs of rows, on a GPU.

Times are the least by CUDA events, beside what the card's float32 lanes allow at its highest clock.
`benchmarks/gpu.py --only joins` races the fastest one with torch.cdist and broadcasting.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

import torch
from on_gpu.joins import pipes, top_clock

from eindecomp.kernels.torch.timing import seconds_of
from eindecomp.lang.dtypes import dtype
from eindecomp.lang.einsum import EinSum
from eindecomp.lang.monoid import MAX, SUM, Monoid
from eindecomp.lang.scalar import Arg, Expr, call

Run = Callable[[], object]
F4 = dtype("float32")
GPU = torch.device("cuda")
GAP = call("sub", Arg(0), Arg(1))
CASES: dict[str, tuple[Expr, Monoid]] = {
    "L-infinity": (call("abs", GAP), MAX),
    "squared L2": (call("pow", GAP, 2), SUM),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=8192, help="rows of both matrices, and columns")
    parser.add_argument("--quick", action="store_true", help="fewer configurations")
    given = parser.parse_args()
    if not torch.cuda.is_available():
        print("no CUDA device: nothing to measure")
        return 0
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, size {given.size}")
    for name in CASES:
        measure(name, given.size, given.quick)
    return 0


def measure(name: str, size: int, quick: bool) -> None:
    from eindecomp.kernels.torch.generated.form import LARGE
    from eindecomp.kernels.torch.generated.launch import fused_join

    expr, agg = CASES[name]
    op = EinSum((("i", "k"), ("j", "k")), ("i", "j"), expr, agg)
    join = fused_join(op, (F4, F4), F4)
    assert join is not None
    torch.manual_seed(0)
    a, b = (torch.randn(size, size, device=GPU) for _ in range(2))
    out = torch.empty(size, size, device=GPU)
    ceiling = 1e3 * pipes(size, GPU)
    print(f"\n{name}: ceiling {ceiling:.2f} ms at {top_clock():.0f} MHz")
    sizes = dict.fromkeys("ijk", size)
    ways = {
        str(way): lambda way=way: join.run([a, b], [out], sizes, config=way)
        for way in LARGE[: 2 if quick else None]
    }
    try_all(ways, lambda: check(name, a, b, out), ceiling)


def try_all(ways: dict[str, Run], checked: Run, ceiling: float) -> None:
    """Print the time of every configuration, and the fastest that gives the right result."""
    times: dict[str, float] = {}
    for name, run in ways.items():
        try:
            run()
            checked()
            times[name] = min(1e3 * seconds_of(run, GPU) for _ in range(3))
            print(f"  {name:62} {times[name]:9.2f} ms  {times[name] / ceiling:5.2f} x", flush=True)
        except Exception as error:
            print(f"  {name:62} fails: {type(error).__name__}: {str(error)[:200]}", flush=True)
    print(f"  fastest: {min(times, key=times.__getitem__)}")


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


if __name__ == "__main__":
    sys.exit(main())
