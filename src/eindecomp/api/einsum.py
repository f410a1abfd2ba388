"""`einsum`: plan and run one expression in one call."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

import numpy as np

from eindecomp.api.compile import engine_of
from eindecomp.engines.engine import Engine, device_count
from eindecomp.engines.executable import Executable
from eindecomp.engines.tensor import Tensor
from eindecomp.errors import ExpressionError, InputError
from eindecomp.graph.arrays import read_array
from eindecomp.graph.graph import Graph
from eindecomp.kernels.library import library_of
from eindecomp.lang.dtypes import Array, DType
from eindecomp.lang.dtypes import dtype as read_dtype
from eindecomp.lang.monoid import Monoid
from eindecomp.lang.scalar import Expr
from eindecomp.planner.make import plan

_PACKAGES = {"torch": "torch", "jax": "jax", "jaxlib": "jax"}
KEPT = 256  # the most expressions whose executables are kept, those used last


def einsum(
    spec: str,
    *operands: object,
    join: str | Expr | None = None,
    agg: str | Monoid | None = None,
    devices: int | None = None,
    sizes: Mapping[str, int] | None = None,
    engine: str | Engine | None = None,
) -> Any:
    """Compute an extended Einstein summation where its operands lie: on cores or on a GPU.

    Planning is done once for each expression, shape and type. The result is of the operands' kind:
    a tensor of torch's on the same device, an array of JAX's, otherwise an array of NumPy's. No
    gradients are recorded.

    Args:
        spec: The labels of operands and result, such as `"ij,jk->ik"` or `"row col -> row"`.
        *operands: Arrays, such as `x, y`: of torch or of JAX, or whatever NumPy reads.
        join: How operands are combined, such as `"(x-y)**2"`; by default they are multiplied.
        agg: How labels that the result lacks are aggregated, such as `"max"`; by default summed.
        devices: How many pieces it is cut into, such as `4`; by default as many as the
            engine has devices: cores, GPUs, JAX's devices or ranks.
        sizes: Those of output labels that no operand has, such as `{"n": 3}`.
        engine: A name, such as `"threads"`, or an engine; by default `"torch"` or `"jax"` if
            operands of theirs lie on a GPU, otherwise `"threads"`.

    Returns:
        The result, of the kind of the first operand of torch or JAX, otherwise NumPy's array.

    Raises:
        ExpressionError: The spec, the join or the aggregation is not well formed.
        GraphError: The operands do not fit the spec.
        InputError: Operands are of torch and of JAX, or on a GPU where the engine cannot read them.

    Examples:
        >>> import numpy as np
        >>> x, y = np.arange(4.0).reshape(2, 2), np.eye(2)
        >>> einsum("ij,jk->ik", x, y, join="(x-y)**2")
        array([[ 2.,  0.],
               [10.,  8.]])
    """
    model = _first_foreign(operands)
    options: dict[str, Any] = {}
    if engine is None:
        engine, options = ("threads", {}) if model is None else _home_of(model)
    # With types, as 2.0 equals 2 but is refused.
    more = tuple((label, size, type(size)) for label, size in (sizes or {}).items())
    arrays: list[Any] = [
        read_array(given, f"operand {k}") if _package_of(given) is None else given
        for k, given in enumerate(operands)
    ]
    types = tuple(_shape_and_type(array, f"operand {k}") for k, array in enumerate(arrays))
    executable = _executable(spec, join, agg, devices, types, more, engine, tuple(options.items()))
    if model is None:
        return executable.run_checked({f"x{k}": array for k, array in enumerate(arrays)})["z"]
    runner = executable.engine
    if not hasattr(runner, "stored"):  # by which others check and read arrays of these kinds
        arrays = [_read_on_host(x, f"operand {k}", runner.name) for k, x in enumerate(arrays)]
    result = executable({f"x{k}": array for k, array in enumerate(arrays)})
    return _as_kind_of(model, result.tensor("z"))


@lru_cache(maxsize=KEPT, typed=True)
def _executable(
    spec: str,
    join: str | Expr | None,
    agg: str | Monoid | None,
    devices: int | None,
    types: tuple[tuple[tuple[int, ...], DType], ...],
    sizes: tuple[tuple[str, int, type], ...],
    engine: str | Engine,
    options: tuple[tuple[str, Any], ...],
) -> Executable:
    graph = Graph()
    for k, (shape, dtype) in enumerate(types):
        graph.input(f"x{k}", {f"d{axis}": size for axis, size in enumerate(shape)}, dtype)
    names = [vertex.name for vertex in graph.inputs]
    more = {label: size for label, size, _ in sizes}
    graph.output(graph.einsum(spec, *names, join=join, agg=agg, name="z", sizes=more))
    runner = engine_of(engine, dict(options))
    count = device_count(runner) if devices is None else devices
    return Executable(plan(graph, count, keep_on_interrupt=False), runner)


# Arrays of torch and JAX: told apart without loading either, and results made of the same kind


def _package_of(given: object) -> str | None:
    """The package whose array this is, "torch" or "jax"; None for whatever NumPy reads."""
    return _package(type(given))


@cache
def _package(kind: type) -> str | None:
    modules = (ancestor.__module__.partition(".")[0] for ancestor in kind.__mro__)
    return next((_PACKAGES[name] for name in modules if name in _PACKAGES), None)


def _first_foreign(operands: Sequence[object]) -> Any:
    """The first array of torch or JAX, whose kind the result has; None if there are none."""
    first: dict[str, Any] = {}
    for given in operands:
        package = _package_of(given)
        if package is not None:
            first.setdefault(package, given)
    if len(first) > 1:
        raise InputError("operands are of torch and of JAX: convert them to one of the two")
    if "jax" in first and isinstance(first["jax"], sys.modules["jax"].core.Tracer):
        raise InputError("operands are traced by JAX: import the function by ed.from_jax instead")
    return next(iter(first.values()), None)


def _shape_and_type(given: Any, name: str) -> tuple[tuple[int, ...], DType]:
    """The shape and the element type of an array, which is not moved."""
    if type(given) is np.ndarray:
        return given.shape, given.dtype  # whatever it is: the graph refuses what it does not know
    try:
        return tuple(given.shape), read_dtype(str(given.dtype).removeprefix("torch."))
    except ExpressionError as error:
        raise InputError(f"{name}: {error}") from None


def _home_of(given: Any) -> tuple[str, dict[str, Any]]:
    """The engine, with its options, that computes where an array of torch or JAX lies."""
    if _package_of(given) == "torch":
        return ("torch", {"device": str(given.device)}) if given.is_cuda else ("threads", {})
    on_cpu = all(device.platform == "cpu" for device in given.devices())
    return ("threads" if on_cpu else "jax"), {}


def _read_on_host(given: Any, name: str, engine: str) -> Array:
    """An array as NumPy's, for an engine that takes no other; one on a GPU is refused."""
    package = _package_of(given)
    if package is not None and _home_of(given)[0] == package:
        raise InputError(
            f"{name} lies on a GPU, where engine {engine!r} does not compute: take "
            f'engine="{package}", or none'
        )
    return read_array(given, name)


def _as_kind_of(given: Any, result: Tensor) -> Any:
    """A result as an array of the same package as another array, torch's on the same device."""
    package, array = _package_of(given), result.array()
    is_own = _package_of(array) == package
    if package == "torch":
        own = array if is_own else library_of("torch").from_numpy(np.asarray(result.numpy()))
        return own.to(given.device)
    if is_own:
        return array
    jax: Any = sys.modules["jax"]
    with jax.enable_x64(True):  # the type is the result's, not JAX's usual one
        return jax.device_put(result.numpy(), next(iter(given.devices())))
