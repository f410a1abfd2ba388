"""The examples for ranks, as their first lines say to run them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from jobs import launch, needs_mpi, run_command

from cases import ALL

EXAMPLES = Path(__file__).parents[3] / "examples"


def run(name, *options, ranks=None):
    """What an example prints on so many ranks, or in one process."""
    start = [sys.executable] if ranks is None else launch("mpi", ranks)
    more = () if ranks is not None else ("--engine", "threads")
    job = run_command([*start, str(EXAMPLES / name), *options, *more])
    assert job.status == 0, job.err
    return job.out.splitlines()


@pytest.mark.long
@needs_mpi
def test_data_parallel_training(tmp_path):
    first = run("data_parallel.py", "--steps", "6", "--checkpoint", str(tmp_path / "run"), ranks=4)
    assert [line.split(":")[0] for line in first[:-1]] == [f"step {n}" for n in range(1, 7)]
    alone = run("data_parallel.py", "--steps", "8")
    numbers = [[float(line.split()[-1]) for line in lines] for lines in (first, alone)]
    assert numbers[0][:6] == pytest.approx(numbers[1][:6], rel=1e-4)
    assert numbers[1][7] < numbers[1][0]  # it learns
    if not ALL:
        return
    resumed = run(
        "data_parallel.py", "--steps", "8", "--checkpoint", str(tmp_path / "run"), ranks=4
    )
    assert [line.split(":")[0] for line in resumed[:-1]] == ["step 7", "step 8"]
    assert float(resumed[-1].split()[-1]) == pytest.approx(numbers[1][7], rel=1e-4)


@pytest.mark.long
@needs_mpi
def test_megatron_generation():
    on_ranks = run("megatron_generation.py", ranks=4)
    assert on_ranks == run("megatron_generation.py")
    assert on_ranks[0].startswith("tokens: [")
    assert on_ranks[1].endswith("between 4 devices")
