"""The paper's experiments against NumPy, torch, dask, ScaLAPACK and transformers.

Prints tables, and writes EXPERIMENT.json as `eindecomp bench` does, with pictures. Peers that are
not installed are listed as absent.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from time import perf_counter

from peers.of_experiments import PEERS
from peers.race import beside
from plot import plot

from eindecomp.engines.whole_files import write_whole
from eindecomp.experiments import EXPERIMENTS, Record
from eindecomp.experiments.record import show


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("experiment", choices=EXPERIMENTS)
    parser.add_argument("--quick", action="store_true", help="small sizes, which take seconds")
    parser.add_argument("-o", "--output", type=Path, default=Path("bench-results"))
    asked = parser.parse_args()
    asked.output.mkdir(parents=True, exist_ok=True)
    name, start = asked.experiment, perf_counter()
    findings = EXPERIMENTS[name](asked.quick, print, race=beside(PEERS[name]))
    record = Record.of(name, asked.quick, perf_counter() - start, findings)
    write_whole(asked.output / f"{name}.json", record.json())
    plot(record, asked.output / name)
    print(show(record))


if __name__ == "__main__":
    main()
