"""What a run gives back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from eindecomp.above import from_above
from eindecomp.errors import InputError, quote, suggest
from eindecomp.graph.vertex import Vertex

if TYPE_CHECKING:
    from eindecomp.engines.tensor import Tensor

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Stats:
    """What a run took.

    Attributes:
        seconds: How long it took, such as `0.25`.
        flops: The operations that kernels carried out, such as `524288`.
        bytes_moved: Between devices for what the plan computes, such as `65536`: `plan.cost` of a
            plan for bytes. Engines whose devices have memory of their own count it where it moves
            (`apart`, `spmd`, `ray`, `jax` in what XLA has compiled); where they share one
            (`threads`, `torch` on one device), it is what was planned, and nothing need be copied.
        bytes_by_vertex: The same by vertex, such as `{"Z": 65536}`.
        peak_memory: Bytes of inputs, results and intermediate tensors that were held at once, on
            the device that held most, such as `2**20`; devices that share memory count as one.
        tasks: How many tasks there were, such as `12`.
        workers: How many workers shared them, such as `2`.
        bytes_placed: Between devices to bring tensors that were given into the layouts in which the
            plan wants them, such as `0`; placing arrays of the caller's is not counted.
        recovered: What was computed again because a worker or a machine was lost, on engines that
            survive it: a line for each task, such as `()`.
        predicted: Seconds that the schedule of a run was expected to take, where tensors come and
            go, such as `0.2`.
        cut_into: Into how many pieces vertices were cut, such as `8`, where they are more than the
            plan's devices, because its tiles did not fit in memory; what moved is then what moved
            between these.
    """

    seconds: float
    flops: int
    bytes_moved: int
    bytes_by_vertex: Mapping[str, int]
    peak_memory: int
    tasks: int
    workers: int
    bytes_placed: int = 0
    recovered: tuple[str, ...] = ()
    predicted: float | None = None
    cut_into: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Result(Mapping[str, Array]):
    """The outputs by name, gathered when they are asked for, and `stats`.

    Attributes:
        tensors: The outputs where they lie on the devices, such as `tensors["Z"]`.
        counted: What the run took, or what makes it up, `Stats` or a function: few ask, and brief
            runs come by the thousand.

    Examples:
        >>> import numpy as np, eindecomp as ed
        >>> graph = ed.parse("input X[i: 4]\\nZ[i] <- X[i] * 2\\noutput Z")
        >>> result = ed.run(ed.plan(graph, 2), {"X": np.ones(4, "float32")})
        >>> result["Z"], result.stats.bytes_moved
        (array([2., 2., 2., 2.], dtype=float32), 0)
    """

    tensors: Mapping[str, Tensor]
    counted: Stats | Callable[[], Stats] = field(repr=False)
    _gathered: dict[str, Array] = field(default_factory=dict[str, Array], repr=False)

    @property
    def stats(self) -> Stats:
        """What the run took."""
        if not isinstance(self.counted, Stats):
            object.__setattr__(self, "counted", self.counted())
            return self.stats
        return self.counted

    # A mapping compares its values, and arrays have no single answer to that.
    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __getitem__(self, name: Vertex | str) -> Array:
        name = name.name if isinstance(name, Vertex) else name
        if name not in self._gathered:
            if name not in self.tensors:
                raise KeyError(self._unknown(name))  # by which a mapping knows what is not in it
            self._gathered[name] = self.tensors[name].numpy()
        return self._gathered[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)

    def __repr__(self) -> str:
        outputs = ", ".join(f"{t.name}{list(t.shape)} {t.dtype}" for t in self.tensors.values())
        stats = self.stats
        took = f"{stats.seconds:.3g} seconds, {stats.bytes_moved:,} bytes moved"
        return f"<Result {outputs or 'without outputs'}; {took}>"

    def _repr_html_(self) -> str:
        return from_above("show.notebook").result_html(self)

    def _unknown(self, name: object) -> str:
        return f"there is no output {quote(name)}{suggest(str(name), self.tensors)}"

    def tensor(self, name: Vertex | str) -> Tensor:
        """An output where it lies on the devices, to be given as an input without gathering it.

        Args:
            name: The output, such as `"Z"`.
        """
        name = name.name if isinstance(name, Vertex) else name
        if name not in self.tensors:
            raise InputError(self._unknown(name))
        return self.tensors[name]
