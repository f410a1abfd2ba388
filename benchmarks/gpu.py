"""One GPU: the engine torch against other systems, and against what the card allows.

Prints tables, and writes gpu.json after every case, gpu.png, gpu.svg, and gpu.trace.json.gz for
Perfetto. docs/gpu_bench.md says what is measured and how. `--quick` takes tiny sizes, which the CPU
can do too.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import torch
from on_gpu.record import GpuRecord, read_records
from on_gpu.show import brief, show
from on_gpu.speeds import card
from on_gpu.tables import measure_tables, selected
from peers.ceiling import check_program

from eindecomp.engines.whole_files import write_whole
from eindecomp.errors import InputError

if TYPE_CHECKING:
    from on_gpu.record import Measured


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="tiny sizes, which take half a minute")
    parser.add_argument("--only", default="", help="tables or cases, as decode,host/16x1024")
    parser.add_argument("--device", help="cpu, or cuda if there is one, which is the default")
    parser.add_argument("--ceiling", type=Path, help="a program that prints what it reaches")
    parser.add_argument("--from", dest="given", type=Path, action="append", metavar="FILE",
                        help="only show and draw the JSON of former runs")  # fmt: skip
    parser.add_argument("-o", "--output", type=Path, default=Path("bench-results"))
    asked = parser.parse_args(arguments)
    try:
        record = read_records(asked.given) if asked.given else _measure(asked)
    except InputError as error:
        print(error, file=sys.stderr)
        return 1
    asked.output.mkdir(parents=True, exist_ok=True)
    write_whole(asked.output / "gpu.json", record.json())
    print(show(record))
    _draw(record, asked.output / "gpu")
    if failed := [row for row in record.measured.rows if row.kind == "ours" and row.absent]:
        cases = ", ".join(dict.fromkeys(row.case for row in failed))
        print(f"of ours, some could not be measured: {cases}", file=sys.stderr)
    return int(bool(failed))


def _measure(asked: argparse.Namespace) -> GpuRecord:
    device = torch.device(asked.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    on_gpu = device.type == "cuda"
    if not on_gpu and not asked.quick:
        raise InputError("there is no GPU to measure: --quick tries all of it on the CPU")
    if asked.ceiling is not None:
        check_program(asked.ceiling)
    cases = selected([name.strip() for name in asked.only.split(",") if name], asked.quick)
    asked.output.mkdir(parents=True, exist_ok=True)
    where = f"{device}, {card(device)}" if on_gpu else str(device)
    start = perf_counter()

    def say(text: str) -> None:
        print(f"{perf_counter() - start:6.1f} s  {text}", file=sys.stderr, flush=True)

    def keep(more: Measured, so_far: Measured) -> None:
        record = GpuRecord.of(asked.quick, where, perf_counter() - start, so_far)
        write_whole(asked.output / "gpu.json", record.json())
        for line in brief(more):
            say(line)

    measured = measure_tables(device, asked.quick, cases, say, asked.output, asked.ceiling, keep)
    return GpuRecord.of(asked.quick, where, perf_counter() - start, measured)


def _draw(record: GpuRecord, stem: Path) -> None:
    try:
        from on_gpu.draw import plot
    except ImportError as error:
        print(f"no pictures ({error}): draw them later by --from", file=sys.stderr)
    else:
        plot(record, stem)


if __name__ == "__main__":
    sys.exit(main())
