"""Running the kernel of a join on tensors of one layout: source, copies, grid, and arguments."""

from __future__ import annotations

import hashlib
import linecache
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import triton
import triton.language as tl
from triton import knobs

from eindecomp.errors import InputError
from eindecomp.kernels.point_program import finish_of, held_types, numbered_program, scalar_type
from eindecomp.kernels.torch.generated.configs import INTERPRETED, Verdicts, tile_configs
from eindecomp.kernels.torch.generated.emit import NamedValue, ScalarLines, Unsuited
from eindecomp.kernels.torch.generated.form import (
    COLS,
    ROWS,
    SUMMED,
    Axis,
    Form,
    Split,
    accesses,
    axes_of,
    split_labels,
)
from eindecomp.kernels.torch.generated.tile_kernel import PACK, Blocking, tile_source
from eindecomp.lang.dtypes import Kind, dtype, kind, widen
from eindecomp.lang.scalar import used_args

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from eindecomp.kernels.point_program import PointProgram
    from eindecomp.kernels.torch.generated.configs import Config
    from eindecomp.lang.dtypes import DType
    from eindecomp.lang.einsum import EinSum, Labels

    Tensor = Any
    Launch = Callable[[Sequence[Tensor], Sequence[Tensor], Sequence[object]], None]

_BAND = 8
_LONG = 2**31
_FUNCTIONS = Path(__file__).with_name("functions.py")
_KEPT = 1024
_verdicts = Verdicts()
_tile_source = cache(tile_source)


class FusedJoin:
    """The unfinished states of an EinSum over operands of given types, of any sizes and strides.

    Outputs overlap no operand. Operands that the join does not read may be None. Tensors are on one
    CUDA device, or on the CPU where Triton's interpreter is on (`TRITON_INTERPRET=1`).
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
        if op.agg is None:
            raise Unsuited("nothing is aggregated")
        self.op, self.dtypes, self.scalar_types = op, dtypes, scalar_types
        self.read = len(used_args(op.join))
        if any(kind(t) is Kind.COMPLEX for t in (*dtypes, out, *(t for _, t in scalar_types))):
            raise Unsuited("complex numbers")
        self.program = numbered_program(op, dtypes, scalar_types)
        self.scalars = tuple(scalar_type(t) for _, t in scalar_types)
        self.state = held_types(self.program, finish_of(op.agg, self.program.state), out)
        _check_written(self.program, dtypes, self.scalars)
        self._launches: dict[Any, Any] = {}

    def run(
        self,
        operands: Sequence[Tensor | None],
        states: Sequence[Tensor],
        sizes: Mapping[str, int],
        scalars: Sequence[object] = (),
        config: Config | None = None,
    ) -> None:
        """Compute the states into tensors, one for each type of `state`.

        `sizes` has every label's. It is done in the given way, or else in the fastest.
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


def _check_written(
    program: PointProgram, dtypes: Sequence[DType], scalars: Sequence[DType]
) -> None:
    """Write the program once, which raises `Unsuited` where it cannot be written."""
    known = {f"s{k}": NamedValue(f"s{k}", t, True) for k, t in enumerate(scalars)}
    inputs = [NamedValue("x", widen(t)) for t in dtypes]
    state = [NamedValue("x", t) for t in program.state]
    lines = ScalarLines("", lambda k: inputs[k], known)
    for expr, of in zip(program.join, program.state, strict=True):
        lines.cast(lines.value(expr), of)
    lines = ScalarLines("", lambda k: (state * 2)[k])
    for expr in program.combine or ():
        lines.value(expr)


def _prepare(
    join: FusedJoin,
    operands: Sequence[Tensor],
    outputs: Sequence[Tensor],
    sizes: Mapping[str, int],
    config: Config | None,
) -> Launch | None:
    """How tensors of a layout are computed; None if there is nothing to compute."""
    if not is_interpreted() and outputs[0].device.type != "cuda":
        raise InputError(f"{join.op}: a generated kernel computes tensors on CUDA devices")
    if 0 in outputs[0].shape:
        return None
    split = split_labels(join.op, join.read, sizes)
    ways = [config] if config else _ways(join, sizes, split)
    launches: dict[Config, Launch] = {}

    def launch_of(way: Config) -> Launch:
        if way not in launches:
            launches[way] = _tiles(join, operands, outputs, sizes, split, way)
        return launches[way]

    def launch(x: Sequence[Tensor], z: Sequence[Tensor], scalars: Sequence[object]) -> None:
        nonlocal chosen
        if chosen is None:
            name = _class_of(join, sizes, split)
            chosen = launch_of(
                _verdicts.find(name, ways, lambda way: launch_of(way)(x, z, scalars))
            )
        chosen(x, z, scalars)

    chosen: Launch | None = None
    return launch


def _ways(join: FusedJoin, sizes: Mapping[str, int], split: Split) -> list[Config]:
    if is_interpreted():
        return [INTERPRETED]
    batch, rows, cols, summed = _extents(sizes, split)
    words = sum(-(-t.itemsize // 4) for t in join.program.state)
    return tile_configs(batch, rows, cols, batch * rows * cols * summed, words)


def _extents(sizes: Mapping[str, int], split: Split) -> list[int]:
    return [prod(sizes[label] for label in group) for group in split.groups]


def _class_of(join: FusedJoin, sizes: Mapping[str, int], split: Split) -> str:
    """What one verdict holds for: the join, and the sizes up to the next power of two."""
    classes = [max(n - 1, 0).bit_length() for n in _extents(sizes, split)]
    return _digest(repr((join.op.definition, join.dtypes, join.state))) + repr(classes)


def _tiles(
    join: FusedJoin,
    operands: Sequence[Tensor],
    outputs: Sequence[Tensor],
    sizes: Mapping[str, int],
    split: Split,
    config: Config,
) -> Launch:
    """A launch of the kernel in one way."""
    given = [_strides(x, t) for x, t in zip(join.op.inputs[: join.read], operands, strict=True)]
    results = [_strides(join.op.output, z) for z in outputs]
    split = _as_stored(split, results[0])
    copies: list[Copy | None] = [None] * join.read
    if config.packed:
        for k, source in enumerate(given):
            found = copy_of(source, sizes, split, config.tile)
            if found is not None:
                copies[k], given[k] = found
    arrays = [*given, *results]
    groups = [axes_of(labels, sizes, arrays, join.read) for labels in split.groups[:SUMMED]]
    one = (Axis(1, (0,) * len(arrays)),)
    groups.append(axes_of(split.summed, sizes, arrays, 0) or one)
    form = _form(join, groups, outputs)
    if config.packed and not _is_copied(form, copies):
        return _tiles(join, operands, outputs, sizes, split, replace(config, packed=False))
    batch, rows, cols = (prod(axis.size for axis in axes) for axes in groups[:SUMMED])
    high, wide = config.tile
    exact = rows % high == 0 and cols % wide == 0
    arguments = {
        "ROWS": config.rows,
        "COLS": config.cols,
        "UNROLL": config.unroll,
        "BAND": _BAND,
        "PADDED": exact or _may_overrun(form, copies),
        "EXACT": exact,
        "LONG": _is_long(groups),
        **({} if is_interpreted() else config.options),
    }
    grid = (batch * -(-rows // high) * -(-cols // wide),)
    kernel = compiled(_tile_source(form, Blocking(config.high, config.wide, config.packed)))
    integers = form.integers(groups)

    def launch(x: Sequence[Tensor], z: Sequence[Tensor], scalars: Sequence[object]) -> None:
        made = [t if copy is None else copy.make(t) for t, copy in zip(x, copies, strict=True)]
        typed = zip(scalars, join.scalars, strict=True)
        own = [
            torch.as_tensor(x, dtype=getattr(torch, t.name), device=z[0].device) for x, t in typed
        ]
        with torch.cuda.device(z[0].device) if z[0].is_cuda else nullcontext():
            kernel[grid](*made, *z, *own, *integers, **arguments)

    return launch


def _strides(labels: Labels, tensor: Tensor) -> dict[str, int]:
    """The stride of each label; one that stands twice walks the diagonal."""
    found: dict[str, int] = {}
    for label, stride in zip(labels, tensor.stride(), strict=True):
        found[label] = found.get(label, 0) + stride
    return found


def _as_stored(split: Split, result: Mapping[str, int]) -> Split:
    """The same groups, rows and columns in the order in which the result's lie in memory."""
    rows, cols = (
        tuple(sorted(side, key=lambda label: -result[label])) for side in (split.rows, split.cols)
    )
    return replace(split, rows=rows, cols=cols)


def _form(join: FusedJoin, groups: Sequence[Sequence[Axis]], outputs: Sequence[Tensor]) -> Form:
    types = [*join.dtypes[: join.read], *(dtype(str(z.dtype)[6:]) for z in outputs)]
    found = accesses(types, groups)
    counts: Any = tuple(len(axes) for axes in groups)
    return Form(join.program, found[: join.read], join.scalars, found[join.read :], counts)


def _is_copied(form: Form, copies: Sequence[Copy | None]) -> bool:
    """Whether all that is loaded in the loop are copies, and the loop is one."""
    pairs = zip(copies, form.inputs, strict=True)
    return form.counts[SUMMED] == 1 and all(copy or not x.varies[SUMMED] for copy, x in pairs)


def _may_overrun(form: Form, copies: Sequence[Copy | None]) -> bool:
    """Whether inputs may be read beyond their last row and column."""
    pairs = zip(copies, form.inputs, strict=True)
    return all(copy or not (x.varies[ROWS] or x.varies[COLS]) for copy, x in pairs)


def _is_long(groups: Sequence[Sequence[Axis]]) -> bool:
    """Whether some array reaches further than 32 bits of offset."""
    count = max((len(axis.strides) for axes in groups for axis in axes), default=0)
    reach = [
        sum((axis.size - 1) * axis.strides[k] for axes in groups for axis in axes)
        for k in range(count)
    ]
    extents = [prod(axis.size for axis in axes) for axes in groups]
    return max([*reach, *extents], default=0) + 2**16 >= _LONG


@dataclass(frozen=True, slots=True)
class Copy:
    """An operand of rows, or of columns, as [batch, summed steps in packs, rows, steps of a pack].

    There are as many rows as fill whole tiles, so that kernels may read beyond the last one. What
    is there is never used.
    """

    shape: tuple[int, ...]
    """Sizes of the operand's labels: of the batch, summed, of rows or columns."""
    source: tuple[int, ...]
    batch: int
    summed: int
    own: int
    padded: int

    @property
    def packs(self) -> int:
        """How many packs there are for each element of the batch."""
        return -(-self.summed // PACK)

    def make(self, operand: Tensor) -> Tensor:
        """Copy an operand."""
        found = operand.as_strided(self.shape, self.source, operand.storage_offset())
        found = found.reshape(self.batch, self.summed, self.own)
        shape = (self.batch, self.packs, self.padded, PACK)
        buffer = torch.empty(shape, dtype=operand.dtype, device=operand.device)
        whole, rest = divmod(self.summed, PACK)
        packed = found[:, : whole * PACK].reshape(self.batch, whole, PACK, self.own)
        buffer[:, :whole, : self.own].copy_(packed.transpose(2, 3))
        if rest:
            last = found[:, whole * PACK :].transpose(1, 2)
            buffer[:, whole, : self.own, :rest].copy_(last)
        return buffer


def copy_of(
    source: Mapping[str, int], sizes: Mapping[str, int], split: Split, tile: tuple[int, int]
) -> tuple[Copy, dict[str, int]] | None:
    """The copy of an operand of given strides, and the copy's; None if it is of no use.

    In packs, the stride of a summed step is that of a pack: the kernel knows.
    """
    rows, cols = ([label for label in side if label in source] for side in (split.rows, split.cols))
    own = rows or cols
    if not own or (rows and cols):
        return None
    batch, summed = (
        [label for label in group if label in source] for group in (split.batch, split.summed)
    )
    block = tile[0 if rows else 1]
    count = {"batch": batch, "summed": summed, "own": own}
    extents = {name: prod(sizes[label] for label in group) for name, group in count.items()}
    order = [*batch, *summed, *own]
    copy = Copy(
        tuple(sizes[label] for label in order),
        tuple(source[label] for label in order),
        **extents,
        padded=-(-extents["own"] // block) * block,
    )
    step = copy.padded * PACK
    strides = _contiguous(own, sizes, PACK) | _contiguous(summed, sizes, step)
    return copy, strides | _contiguous(batch, sizes, step * copy.packs)


def _contiguous(labels: list[str], sizes: Mapping[str, int], step: int) -> dict[str, int]:
    found: dict[str, int] = {}
    for label in reversed(labels):
        found[label] = step
        step *= sizes[label]
    return found


def is_interpreted() -> bool:
    """Whether Triton's interpreter runs kernels now, on the CPU: `TRITON_INTERPRET=1`."""
    return bool(knobs.runtime.interpret)


def compiled(source: str) -> Any:
    """The function `kernel` of a generated source, for the compiler or the interpreter."""
    return _compiled(source, is_interpreted())


@cache
def _compiled(source: str, interpreted: bool) -> Any:
    """Triton reads a function's source when it is made; `linecache` holds ours.

    It keeps what it compiles on disk by itself.
    """
    name = f"<eindecomp kernel {_digest(source)}{' interpreted' if interpreted else ''}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    scope: dict[str, Any] = {
        "__name__": "eindecomp.generated",
        "triton": triton,
        "tl": tl,
        **_functions(interpreted),
    }
    exec(compile(source, name, "exec"), scope)  # noqa: S102 - numbers and names of our making
    return scope["kernel"]


def _digest(source: str) -> str:
    return hashlib.sha256(source.encode()).hexdigest()[:16]


@cache
def _functions(interpreted: bool) -> dict[str, Any]:
    """The functions of `functions.py`, made for the compiler or for the interpreter."""
    name = f"eindecomp_triton_functions{'_interpreted' if interpreted else ''}"
    spec = spec_from_file_location(name, _FUNCTIONS)
    assert spec is not None  # noqa: S101
    assert spec.loader is not None  # noqa: S101
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    namespace: dict[str, Any] = vars(module)
    made: type[object] = namespace["exp"].__class__
    return {name: value for name, value in namespace.items() if isinstance(value, made)}
