"""Data-parallel training on the ranks of a job, with checkpoints that any number of ranks resumes.

mpirun -n 4 python examples/data_parallel.py --checkpoint run --steps 20
mpirun -n 2 python examples/data_parallel.py --checkpoint run --steps 40
"""

import argparse

import eindecomp as ed
from eindecomp import models
from eindecomp.engines.engine import find_engine


def main() -> None:
    """Train a small classifier; every rank has its part of each batch."""
    take = argparse.ArgumentParser()
    take.add_argument("--steps", type=int, default=20)
    take.add_argument("--every", type=int, default=5, help="steps between two checkpoints")
    take.add_argument("--checkpoint", help="a folder; training goes on from what is there")
    take.add_argument("--strategy", default="data", help="data, or zero: the state is cut as well")
    take.add_argument("--engine", default="spmd")
    given = take.parse_args()

    engine = find_engine(given.engine)
    rank, ranks = getattr(engine, "rank", 0), getattr(engine, "device_count", 4)
    graph = models.ffnn(batch=24, features=60, hidden=36, classes=12, optimizer="adam")
    plan = ed.plan_together(lambda: ed.plan(graph, ranks, strategy=given.strategy), engine)

    def show(step: int, loss: float) -> None:
        if rank == 0:
            print(f"step {step}: loss {loss!r}", flush=True)

    fitted = models.fit(
        graph,
        models.Synthetic(batch=24, features=60, classes=12, nonzeros=8),
        models.initial(graph, seed=1),
        lr=0.01,
        steps=given.steps,
        plan=plan,
        engine=engine,
        checkpoint=given.checkpoint,
        every=given.every,
        on_step=show,
    )
    if rank == 0:
        print(f"{fitted.step} steps on {ranks} devices, loss {fitted.losses[-1]!r}")


if __name__ == "__main__":
    main()
