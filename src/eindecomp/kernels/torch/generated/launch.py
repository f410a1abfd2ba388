"""Running the kernel of a join on tensors of one layout: source, copies, grid, and arguments."""

from __future__ import annotations

import hashlib
import linecache
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import cache, lru_cache
from math import prod
from typing import Any

import torch
from triton import knobs

from eindecomp.errors import InputError
from eindecomp.kernels.point_program import finish_of, held_types, numbered_program, scalar_type
from eindecomp.kernels.tile_arrays import strides_of
from eindecomp.kernels.torch.generated import functions
from eindecomp.kernels.torch.generated.emit import Unsuited
from eindecomp.kernels.torch.generated.form import (
    COLS,
    INTERPRETED,
    ROWS,
    SUMMED,
    Copy,
    JoinAccess,
    JoinAxis,
    JoinForm,
    Split,
    Tuning,
    accesses,
    axes_of,
    copy_of,
    fastest_config,
    split_labels,
    tile_configs,
)
from eindecomp.kernels.torch.generated.tile_kernel import tile_source
from eindecomp.lang.dtypes import DType, Kind, dtype, kind
from eindecomp.lang.einsum import EinSum
from eindecomp.lang.scalar import used_args

Tensor = Any
Tensors = Sequence[Any]
Sizes = Mapping[str, int]
Launch = Callable[[Tensors, Tensors, Sequence[object]], None]

_BAND = 8
_LONG = 2**31
_KEPT = 1024


class FusedJoin:
    """The unfinished states of an EinSum over operands of given types, of any sizes and strides.

    Outputs overlap no operand. Operands that the join does not read may be None. Tensors are on one
    CUDA device, or on the CPU where Triton's interpreter is on (`TRITON_INTERPRET=1`), which has
    no `libdevice`.
    """

    state: tuple[DType, ...]
    """The types in which partial results are held: wide ones, so that sums are rounded once."""

    def __init__(
        self,
        op: EinSum,
        dtypes: tuple[DType, ...],
        out: DType,
        scalar_types: tuple[tuple[str, DType], ...] = (),
    ) -> None:
        """Raises `Unsuited` where the kernel cannot be written."""
        if op.agg is None:
            raise Unsuited("nothing is aggregated")
        self.op, self.dtypes, self.scalar_types = op, dtypes, scalar_types
        self.read = len(used_args(op.join))
        if any(kind(t) is Kind.COMPLEX for t in (*dtypes, out, *(t for _, t in scalar_types))):
            raise Unsuited("complex numbers")
        self.program = numbered_program(op, dtypes, scalar_types)
        self.scalars = tuple(scalar_type(t) for _, t in scalar_types)
        self.state = held_types(self.program, finish_of(op.agg, self.program.state), out)
        everywhere = (True, True, True, True)
        inputs = tuple(JoinAccess(t, everywhere) for t in dtypes[: self.read])
        outputs = tuple(JoinAccess(t, everywhere) for t in self.state)
        tile_source(JoinForm(self.program, inputs, self.scalars, outputs, (1, 1, 1, 1)), 1, 1)
        self._launches: dict[Any, Any] = {}

    def run(
        self,
        operands: Tensors,
        states: Tensors,
        sizes: Sizes,
        scalars: Sequence[object] = (),
        config: Tuning | None = None,
    ) -> None:
        """Compute the states into tensors, one for each type of `state`.

        `sizes` has every label's. They are computed in the given way, or else in the fastest.
        """
        read = operands[: self.read]
        layout = [(tuple(x.shape), x.stride(), x.dtype) for x in (*read, *states) if x is not None]
        key = (config, *sizes.items(), states[0].device, *layout)
        launch = self._launches.get(key, ...)  # None means that there is nothing to compute
        if launch is ...:
            if len(self._launches) >= _KEPT:
                self._launches.clear()
            launch = self._launches[key] = _prepare(self, read, states, sizes, config)
        if launch is not None:
            launch(read, states, scalars)


@lru_cache(maxsize=2**12)
def fused_join(
    op: EinSum,
    dtypes: tuple[DType, ...],
    out: DType,
    scalar_types: tuple[tuple[str, DType], ...] = (),
) -> FusedJoin | None:
    """The generated kernel of an EinSum; None where it does not suit.

    It does not where nothing is aggregated; for complex numbers, and for integers to a power that
    is not a literal; for products of floats, which are matrix products; and where an input has all
    labels, so that no value that is loaded serves several points.
    """
    if op.is_contraction and out.kind not in "biu":
        return None
    if any(set(labels) >= set(op.labels) for labels in op.inputs[: len(used_args(op.join))]):
        return None
    try:
        return FusedJoin(op, dtypes, out, scalar_types)
    except Unsuited:
        return None


_registered: dict[str, FusedJoin] = {}


def fused_states(
    join: FusedJoin, operands: Tensors, sizes: Sizes, scalars: Tensors = ()
) -> list[Tensor]:
    """The states of a join as new tensors; `sizes` has every label's.

    This is what a traced function calls: it makes one node of the graph.
    """
    described = repr((join.op.definition, join.dtypes, join.state, join.scalar_types))
    key = _digest(described)
    _registered.setdefault(key, join)
    extents = [sizes[label] for label in join.op.labels]
    call: Any = torch.ops.eindecomp.fused_join
    return call(key, list(operands[: join.read]), list(scalars), extents)


@torch.library.custom_op("eindecomp::fused_join", mutates_args=())
def _fused_join(
    key: str, operands: list[torch.Tensor], scalars: list[torch.Tensor], sizes: list[int]
) -> list[torch.Tensor]:
    join = _find(key)
    states = _empty(join, operands, scalars, sizes)
    join.run(operands, states, dict(zip(join.op.labels, sizes, strict=True)), scalars)
    return states


@_fused_join.register_fake
def _(
    key: str, operands: list[torch.Tensor], scalars: list[torch.Tensor], sizes: list[int]
) -> list[torch.Tensor]:
    return _empty(_find(key), operands, scalars, sizes)


def _find(key: str) -> FusedJoin:
    if key not in _registered:
        raise InputError(f"no generated kernel is registered under {key!r} in this process")
    return _registered[key]


def _empty(join: FusedJoin, operands: list[Any], scalars: list[Any], sizes: list[int]) -> list[Any]:
    """New states on the operands' device; the output's labels are the first of an EinSum's."""
    device = next((x.device for x in (*operands, *scalars)), torch.get_default_device())
    shape = sizes[: len(join.op.output)]
    return [torch.empty(shape, dtype=getattr(torch, t.name), device=device) for t in join.state]


def _prepare(
    join: FusedJoin, operands: Tensors, outputs: Tensors, sizes: Sizes, config: Tuning | None
) -> Launch | None:
    """The launch for tensors of a layout; None if there is nothing to compute."""
    if not is_interpreted() and outputs[0].device.type != "cuda":
        raise InputError(f"{join.op}: a generated kernel computes tensors on CUDA devices")
    if 0 in outputs[0].shape:
        return None
    split = split_labels(join.op, join.read, sizes)
    extents = [prod(sizes[label] for label in group) for group in split]
    if config is not None or is_interpreted():
        ways = [config or INTERPRETED]
    else:
        words = sum(-(-t.itemsize // 4) for t in join.program.state)
        ways = tile_configs(*extents[:SUMMED], points=prod(extents), width=words)
    launches: dict[Tuning, Launch] = {}

    def launch_of(way: Tuning) -> Launch:
        if way not in launches:
            launches[way] = _tiles(join, operands, outputs, sizes, split, way)
        return launches[way]

    def launch(x: Tensors, z: Tensors, scalars: Sequence[object]) -> None:
        nonlocal chosen
        if chosen is None:
            # One verdict holds for the join, and the sizes up to the next power of two.
            classes = [max(n - 1, 0).bit_length() for n in extents]
            name = _digest(repr((join.op.definition, join.dtypes, join.state))) + repr(classes)
            fastest = fastest_config(name, ways, lambda way: launch_of(way)(x, z, scalars))
            chosen = launch_of(fastest)
        chosen(x, z, scalars)

    chosen: Launch | None = None
    return launch


def _tiles(
    join: FusedJoin, operands: Tensors, outputs: Tensors, sizes: Sizes, split: Split, config: Tuning
) -> Launch:
    """A launch of the kernel in one way."""
    given = [
        strides_of(x, t.stride())
        for x, t in zip(join.op.inputs[: join.read], operands, strict=True)
    ]
    results = [strides_of(join.op.output, z.stride()) for z in outputs]
    rows, cols = (  # as the result's lie in memory
        tuple(sorted(side, key=lambda label: -results[0][label]))
        for side in (split.rows, split.cols)
    )
    split = split._replace(rows=rows, cols=cols)
    copies: list[Copy | None] = [None] * join.read
    if config.packed:
        for k, source in enumerate(given):
            copy = copy_of(source, sizes, split, config.tile)
            if copy is not None:
                copies[k], given[k] = copy
    arrays = [*given, *results]
    groups = [axes_of(labels, sizes, arrays, join.read) for labels in split[:SUMMED]]
    one = (JoinAxis(1, (0,) * len(arrays)),)
    groups.append(axes_of(split.summed, sizes, arrays, 0) or one)
    types = [*join.dtypes[: join.read], *(dtype(str(z.dtype)[6:]) for z in outputs)]
    varying = accesses(types, groups)
    counts: Any = tuple(len(axes) for axes in groups)
    form = JoinForm(join.program, varying[: join.read], join.scalars, varying[join.read :], counts)
    direct = [x for x, copy in zip(form.inputs, copies, strict=True) if copy is None]
    if config.packed and (counts[SUMMED] > 1 or any(x.varies[SUMMED] for x in direct)):
        return _tiles(join, operands, outputs, sizes, split, replace(config, packed=False))
    batch, height, width = (prod(axis.size for axis in axes) for axes in groups[:SUMMED])
    high, wide = config.tile
    exact = height % high == 0 and width % wide == 0
    may_overrun = not any(x.varies[ROWS] or x.varies[COLS] for x in direct)
    arguments = {
        "ROWS": config.rows,
        "COLS": config.cols,
        "UNROLL": config.unroll,
        "BAND": _BAND,
        "PADDED": exact or may_overrun,
        "EXACT": exact,
        "LONG": _is_long(groups),
        **({} if is_interpreted() else config.options),
    }
    grid = (batch * -(-height // high) * -(-width // wide),)
    kernel = compiled(tile_source(form, config.high, config.wide, config.packed))
    integers = form.integers(groups)

    def launch(x: Tensors, z: Tensors, scalars: Sequence[object]) -> None:
        made = [t if copy is None else copy.make(t) for t, copy in zip(x, copies, strict=True)]
        typed = zip(scalars, join.scalars, strict=True)
        own = [
            torch.as_tensor(x, dtype=getattr(torch, t.name), device=z[0].device) for x, t in typed
        ]
        with torch.cuda.device(z[0].device) if z[0].is_cuda else nullcontext():
            kernel[grid](*made, *z, *own, *integers, **arguments)

    return launch


def _is_long(groups: Sequence[Sequence[JoinAxis]]) -> bool:
    """Whether some array reaches further than 32 bits of offset."""
    count = max((len(axis.strides) for axes in groups for axis in axes), default=0)
    reach = [
        sum((axis.size - 1) * axis.strides[k] for axes in groups for axis in axes)
        for k in range(count)
    ]
    extents = [prod(axis.size for axis in axes) for axes in groups]
    return max([*reach, *extents], default=0) + 2**16 >= _LONG


def is_interpreted() -> bool:
    """Whether Triton's interpreter runs kernels now, on the CPU: `TRITON_INTERPRET=1`."""
    return bool(knobs.runtime.interpret)


@cache
def compiled(source: str) -> Any:
    """The function `kernel` of a generated source.

    Triton reads a function's source when it is made; `linecache` holds ours. It keeps what it
    compiles on disk by itself.
    """
    name = f"<eindecomp kernel {_digest(source)}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    scope: dict[str, Any] = {**vars(functions), "__name__": "eindecomp.generated"}
    exec(compile(source, name, "exec"), scope)  # noqa: S102 - numbers and names of our making
    return scope["kernel"]


def _digest(source: str) -> str:
    return hashlib.sha256(source.encode()).hexdigest()[:16]
