"""Links of ranks that MPI has started: each axis of the mesh has a communicator of its own."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from math import prod
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from eindecomp.errors import InputError
from eindecomp.planner.space.mesh import Mesh

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from eindecomp.experiments.calibrate.links import Way
    from eindecomp.planner.costs.transfer import Collective

_BESIDE = 4 << 20  # bytes that are received beside computing
_LEAST = 1e-9


class MpiLinks:
    """The ranks of a communicator as a mesh; every rank calls everything in the same order."""

    def __init__(self, mesh: Mapping[str, int] | None = None) -> None:
        self._mpi = _mpi()
        world: Any = self._mpi.COMM_WORLD
        self.rank, self.ranks = int(world.Get_rank()), int(world.Get_size())
        if self.ranks < 2:
            raise InputError(
                "collectives need at least 2 ranks: mpirun -n 2 eindecomp calibrate --engine spmd"
            )
        self.mesh = Mesh.of_devices(self.ranks) if mesh is None else Mesh.of_axes(mesh)
        if self.mesh.devices != self.ranks:
            raise InputError(f"the mesh {dict(mesh or {})} is not of {self.ranks} ranks")
        self._world = world
        self._groups = {
            name: world.Split(self._color(axis), self.rank)
            for axis, name in enumerate(self.mesh.names)
        }

    @contextmanager
    def ending_together(self) -> Generator[None]:
        """Ends all ranks where one of them fails: the others would wait for it forever."""
        try:
            yield
        except BaseException as error:
            sys.stderr.write(f"eindecomp: rank {self.rank}: {type(error).__name__}: {error}\n")
            sys.stderr.flush()
            self._world.Abort(1)
            raise

    def _color(self, axis: int) -> int:
        """The same for ranks that differ only along an axis."""
        own = self.mesh.coordinates[:, self.rank].tolist()
        inner = prod(self.mesh.sizes[axis + 1 :])
        return self.rank - own[axis] * inner

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes of the mesh."""
        return self.mesh.names

    @property
    def collectives(self) -> Mapping[Collective, Callable[[str, int], Way]]:
        """All of them."""
        return {
            "all_gather": self._all_gather,
            "all_to_all": self._all_to_all,
            "reduce_scatter": self._reduce_scatter,
            "point_to_point": self._point_to_point,
        }

    def slowest(self, seconds: float) -> float:
        """The most that any rank says, once all have said it."""
        return float(self._world.allreduce(seconds, op=self._mpi.MAX))

    def _blocks(self, axis: str, size: int) -> tuple[Any, int, int]:
        """An axis's group, its size, and the elements that each of the others sends."""
        group = self._groups[axis]
        ways = int(group.Get_size())
        return group, ways, max(size // 4 // (ways - 1), 1)

    def _all_gather(self, axis: str, size: int) -> Way:
        group, ways, block = self._blocks(axis, size)
        own, every = np.ones(block, np.float32), np.empty(ways * block, np.float32)
        return lambda: group.Allgather(own, every)

    def _all_to_all(self, axis: str, size: int) -> Way:
        group, ways, block = self._blocks(axis, size)
        own, every = np.ones(ways * block, np.float32), np.empty(ways * block, np.float32)
        return lambda: group.Alltoall(own, every)

    def _reduce_scatter(self, axis: str, size: int) -> Way:
        """Partial results are exchanged, then combined in a fixed order, as engines do it."""
        group, ways, block = self._blocks(axis, size)
        own, every = np.ones((ways, block), np.float32), np.empty((ways, block), np.float32)
        total = np.empty(block, np.float32)

        def way() -> None:
            group.Alltoall(own, every)
            np.add(every[0], every[1], out=total)
            for each in every[2:]:
                np.add(total, each, out=total)

        return way

    def _point_to_point(self, axis: str, size: int) -> Way:
        group = self._groups[axis]
        rank, ways = int(group.Get_rank()), int(group.Get_size())
        count = max(size // 4, 1)
        own, others = np.ones(count, np.float32), np.empty(count, np.float32)
        to, source = (rank + 1) % ways, (rank - 1) % ways
        return lambda: group.Sendrecv(own, to, 0, others, source, 0)

    def overlap(self, repeats: int) -> float:
        """The fraction of computing beside which an all-gather runs, 0 to 1."""
        group, ways, block = self._blocks(self.axes[-1], _BESIDE)
        own, every = np.ones(block, np.float32), np.empty(ways * block, np.float32)
        tile = np.ones((128, 128), np.float32)

        def talk() -> None:
            group.Allgather(own, every)

        alone = min(self._timed(talk) for _ in range(repeats))
        one = min(self._timed(lambda: tile @ tile) for _ in range(repeats + 2))
        calls = max(int(alone / max(one, _LEAST)), 1)

        def compute() -> None:
            for _ in range(calls):
                tile @ tile  # pyright: ignore[reportUnusedExpression]

        def both() -> None:
            request = group.Iallgather(own, every)
            compute()
            request.Wait()

        computing = min(self._timed(compute) for _ in range(repeats))
        together = min(self._timed(both) for _ in range(repeats))
        hidden = (alone + computing - together) / max(min(alone, computing), _LEAST)
        return min(max(hidden, 0.0), 1.0)

    def _timed(self, way: Way) -> float:
        self._world.Barrier()
        start = perf_counter()
        way()
        return self.slowest(perf_counter() - start)


def _mpi() -> Any:
    """MPI, started now if it is there."""
    try:
        from mpi4py import MPI  # pyright: ignore[reportMissingTypeStubs]
    except ImportError as error:
        raise InputError(
            f"engine 'spmd' is calibrated over MPI, which needs mpi4py: {error}"
        ) from None
    return MPI
