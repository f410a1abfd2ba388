"""Arrays of torch and JAX: told apart without loading either, and results made of the same kind."""

from __future__ import annotations

import sys
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from eindecomp.errors import ExpressionError, InputError
from eindecomp.graph.arrays import read_array
from eindecomp.kernels.library import library_of
from eindecomp.lang.dtypes import dtype

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eindecomp.engines.tensor import Tensor
    from eindecomp.lang.dtypes import DType

    Array = np.ndarray[Any, Any]

_PACKAGES = {"torch": "torch", "jax": "jax", "jaxlib": "jax"}


def package_of(given: object) -> str | None:
    """The package whose array this is, "torch" or "jax"; None for whatever NumPy reads."""
    return _package(type(given))


@cache
def _package(kind: type) -> str | None:
    modules = (ancestor.__module__.partition(".")[0] for ancestor in kind.__mro__)
    return next((_PACKAGES[name] for name in modules if name in _PACKAGES), None)


def first_foreign(operands: Sequence[object]) -> Any:
    """The first array of torch or JAX, whose kind the result has; None if there are none."""
    found: dict[str, Any] = {}
    for given in operands:
        package = package_of(given)
        if package is not None:
            found.setdefault(package, given)
    if len(found) > 1:
        raise InputError("operands are of torch and of JAX: convert them to one of the two")
    if "jax" in found and isinstance(found["jax"], sys.modules["jax"].core.Tracer):
        raise InputError("operands are traced by JAX: import the function by ed.from_jax instead")
    return next(iter(found.values()), None)


def shape_and_type(given: Any, name: str) -> tuple[tuple[int, ...], DType]:
    """The shape and the element type of an array, which is not moved."""
    if type(given) is np.ndarray:
        return given.shape, given.dtype  # whatever it is: the graph refuses what it does not know
    try:
        return tuple(given.shape), dtype(str(given.dtype).removeprefix("torch."))
    except ExpressionError as error:
        raise InputError(f"{name}: {error}") from None


def home_of(given: Any) -> tuple[str, dict[str, Any]]:
    """The engine, with its options, that computes where an array of torch or JAX lies."""
    if package_of(given) == "torch":
        return ("torch", {"device": str(given.device)}) if given.is_cuda else ("threads", {})
    on_cpu = all(device.platform == "cpu" for device in given.devices())
    return ("threads" if on_cpu else "jax"), {}


def read_on_host(given: Any, name: str, engine: str) -> Array:
    """An array as NumPy's, for an engine that takes no other; one on a GPU is refused."""
    package = package_of(given)
    if package is not None and home_of(given)[0] == package:
        raise InputError(
            f"{name} lies on a GPU, where engine {engine!r} does not compute: take "
            f'engine="{package}", or none'
        )
    return read_array(given, name)


def as_kind_of(given: Any, found: Tensor) -> Any:
    """A result as an array of the same package as another array, torch's on the same device."""
    package, array = package_of(given), found.array()
    is_own = package_of(array) == package
    if package == "torch":
        own = array if is_own else library_of("torch").from_numpy(np.asarray(found.numpy()))
        return own.to(given.device)
    if is_own:
        return array
    jax: Any = sys.modules["jax"]
    with jax.enable_x64(True):  # the type is the result's, not JAX's usual one
        return jax.device_put(found.numpy(), next(iter(given.devices())))
