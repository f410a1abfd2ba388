"""Contest instances: cost, ratio to the best of 20 teams, proved gap and time, as a table.

    python benchmarks/solve_contest.py [NAMES] [--factor 1.0] [--seed 0]

The time limit of each run is the contest's times `--factor`, reading not counted. Reads the
instances from `../shared/iopddl` beside the repository, or says that they are not there.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from time import perf_counter

from eindecomp.solve import minimize, read_contest

INSTANCES = Path(__file__).resolve().parents[2] / "shared" / "iopddl"
# name: (contest's limit in seconds, best of 20 teams, XLA's solver or None)
KNOWN = {
    "B": (60, 532_843, 990_205),
    "G": (120, 217_039, 1_264_777),
    "V": (300, 1_632_051, None),
    "A": (60, 6_548_641_531, 13_214_846_074),
    "C": (60, 84_102_445_260, 4_195_881_092_919),
    "K": (180, 2_274_276_676, None),
    "M": (180, 49_928_460_991, None),
    "S": (240, 1_534_613_444, None),
    "P": (240, 662_197_407_330, 651_833_115_436),
    "U": (300, 2_569_342_178, None),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="?", default="".join(KNOWN))
    parser.add_argument("--factor", type=float, default=1.0)
    parser.add_argument(
        "--limit", type=float, default=None, help="seconds, instead of the contest's"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, default=INSTANCES)
    options = parser.parse_args()
    if not options.folder.is_dir():
        print(f"skipped: no instances at {options.folder}")
        return
    head = (
        "instance",
        "cost",
        "to best",
        "to XLA",
        "bound",
        "gap %",
        "read s",
        "solve s",
        "proved",
    )
    print("| " + " | ".join(head) + " |", flush=True)
    print("|" + " --- |" * len(head))
    for name in options.names:
        limit, best, xla = KNOWN[name]
        start = perf_counter()
        problem = read_contest(options.folder / f"{name}.json.gz")
        reading = perf_counter() - start
        seconds = options.limit if options.limit is not None else limit * options.factor
        found = minimize(problem, time_limit=seconds, seed=options.seed)
        assert problem.feasible(found.choice)
        row = (
            name,
            f"{found.cost:,}",
            f"{found.cost / best:.6f}",
            f"{found.cost / xla:.6f}" if xla else "-",
            f"{found.bound:,}",
            f"{100 * found.gap:.3f}",
            f"{reading:.1f}",
            f"{found.seconds:.1f}",
            "yes" if found.optimal else "no",
        )
        print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
