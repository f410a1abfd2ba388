"""The arguments of a JAX function as named arrays, and the names of its results."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import source_info_util

from eindecomp.frontends.input_names import free_name, input_name, key_of

Leaf = Any
Kwargs = Mapping[str, Any]

source_info_util.register_exclusion(__file__)  # it calls the user's function, but is not theirs


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arrays among the arguments of a call, by name, and how to put them back."""

    names: tuple[str, ...]
    arrays: tuple[Leaf, ...]
    _leaves: tuple[Leaf, ...]
    _places: tuple[int, ...]
    """Which leaves are arrays."""
    _tree: Any

    @property
    def static(self) -> tuple[str, str]:
        """What else a function depends on, as a key: the leaves that are fixed, and the tree."""
        fixed = [leaf for k, leaf in enumerate(self._leaves) if k not in self._places]
        return repr(fixed), repr(self._tree)

    def call(self, fn: Callable[..., Any], arrays: Sequence[Leaf]) -> Any:
        """The function of these arrays and of the other arguments as they were given."""
        leaves = list(self._leaves)
        for place, array in zip(self._places, arrays, strict=True):
            leaves[place] = array
        args, kwargs = jax.tree.unflatten(self._tree, leaves)
        return fn(*args, **kwargs)


def arguments_of(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Kwargs) -> Arguments:
    """Name the arrays in the arguments of a function after its parameters and their pytrees.

    All leaves that are no arrays, Python's numbers among them, are fixed.
    """
    given = (args, dict(kwargs))
    tops = _parameter_names(fn, len(args))
    leaves, tree = _flattened(given)
    names: list[str] = []
    places: list[int] = []
    for place, (path, leaf) in enumerate(leaves):
        if not is_array(leaf):
            continue
        place_of_top: Any = path[1]
        top = tops[int(place_of_top.idx)] if path[0].idx == 0 else key_of(place_of_top)
        names.append(free_name(dotted([top, *map(key_of, path[2:])]), names))
        places.append(place)
    values = tuple(leaf for _, leaf in leaves)
    return Arguments(tuple(names), tuple(values[k] for k in places), values, tuple(places), tree)


def _flattened(tree: Any) -> tuple[list[tuple[tuple[Any, ...], Leaf]], Any]:
    """The leaves of a pytree, each with the way to it, and the tree without them."""
    trees: Any = jax.tree
    return trees.flatten_with_path(tree)


def is_key(dtype: Any) -> bool:
    """Whether a type is one of JAX's own, which keys of random numbers have."""
    return jnp.issubdtype(dtype, jax.dtypes.extended)


def is_array(leaf: object) -> bool:
    """Whether a leaf of a pytree is an array, or the shape of one."""
    return isinstance(leaf, jax.Array | jax.ShapeDtypeStruct | np.ndarray | np.generic)


def output_names(tree: Any, taken: Iterable[str]) -> list[str]:
    """Names for the leaves of a result: `out`, `out.0`, `out.logits`."""
    stem = "out"
    while any(name.split(".")[0] == stem for name in taken):
        stem = f"{stem}_"
    names: list[str] = []
    for path, _ in _flattened(tree)[0]:
        names.append(free_name(dotted([stem, *map(key_of, path)]), names))
    return names


def _parameter_names(fn: Callable[..., Any], count: int) -> list[str]:
    """A name for each positional argument, the parameter's if it has one."""
    try:
        parameters = [*inspect.signature(fn).parameters.values()]
    except (TypeError, ValueError):
        parameters = []
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [each.name for each in parameters if each.kind in positional][:count]
    rest = [e.name for e in parameters if e.kind is inspect.Parameter.VAR_POSITIONAL] or ["arg"]
    return names + [f"{rest[0]}.{k}" for k in range(count - len(names))]


def dotted(parts: Sequence[str]) -> str:
    """A name of several words; what no name may have in it becomes an underscore.

    >>> dotted(["params", "layers", "0", "w-q"])
    'params.layers.0.w_q'
    """
    words = [re.sub(r"[^0-9A-Za-z_.]", "_", part).strip(".") or "_" for part in parts]
    return input_name(".".join(words))
