"""`Tensor`: data that stays on an engine's devices, between runs and from one plan to another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from eindecomp.errors import InputError

if TYPE_CHECKING:
    from eindecomp.lang.dtypes import DType
    from eindecomp.layout.mesh import Mesh
    from eindecomp.layout.tiling import Tiling

    Array = np.ndarray[Any, Any]


@dataclass(slots=True, eq=False, weakref_slot=True)
class Tensor:
    """A tensor on the devices, in the layouts of the plan that placed or made it.

    It can be given as an input again and again; `numpy()` and `np.asarray` gather it, `array()` and
    DLPack do so without leaving the engine's devices where it has arrays of its own.

    Attributes:
        name: That of the input or output, such as `"W"`.
        shape: Its sizes, such as `(8, 8)`.
        dtype: The type of its items, such as `float32`.
        engine: The engine on whose devices it lies, such as `"threads"`.
        mesh: The devices' axes, such as `mesh.devices` of them.
        tilings: The layouts in which it lies, such as `tilings[0]`.
        data: The engine's own; `None` once it was released or its memory was donated.
        gather: Makes one array of `data`, such as `gather(data)`.
        own: Makes one array of the engine's own kind, `None` if that is NumPy's.

    Examples:
        >>> import numpy as np, eindecomp as ed
        >>> graph = ed.parse("input X[i: 4]\\nZ[i] <- X[i] * 2\\noutput Z")
        >>> ed.compile(ed.plan(graph, 2)).place({"X": np.ones(4, "float32")})["X"]
        <Tensor X[4] float32 on threads>
    """

    name: str
    shape: tuple[int, ...]
    dtype: DType
    engine: str
    mesh: Mesh
    tilings: tuple[Tiling, ...]
    data: Any
    gather: Callable[[Any], Array]
    own: Callable[[Any], Any] | None = None

    def numpy(self) -> Array:
        """The whole tensor as one array; engines that share memory with the caller do not copy."""
        return self.gather(self.held())

    def array(self) -> Any:
        """The whole tensor as one array of the engine's own kind.

        Where it lies in one piece that is the tensor's own memory, otherwise a copy: do not write
        to it, and copy what must outlast the tensor.
        """
        return self.numpy() if self.own is None else self.own(self.held())

    def held(self) -> Any:
        """The engine's data, if it is there still."""
        if self.data is None:
            raise InputError(f"tensor {self.name!r} was donated or released: its memory is gone")
        return self.data

    def release(self) -> None:
        """Let go of the memory."""
        self.data = None

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.array(self.numpy(), dtype=dtype, copy=copy)

    def __dlpack__(self, **options: Any) -> Any:
        return self.array().__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array().__dlpack_device__()

    def __repr__(self) -> str:
        state = "" if self.data is not None else ", released"
        return f"<Tensor {self.name}{list(self.shape)} {self.dtype} on {self.engine}{state}>"
