"""Running the kernel of a join on tensors of one layout: copies, grid, and arguments."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from functools import cache
from math import prod
from typing import TYPE_CHECKING, Any

import torch

from eindecomp.errors import InputError
from eindecomp.kernels.torch.generated.compile import compiled, digest, is_interpreted
from eindecomp.kernels.torch.generated.configs import (
    INTERPRETED,
    Verdicts,
    lane_config,
    tile_configs,
)
from eindecomp.kernels.torch.generated.copies import Copy, copy_of
from eindecomp.kernels.torch.generated.form import COLS, ROWS, SUMMED, Form, accesses
from eindecomp.kernels.torch.generated.groups import Axis, Split, axes_of, split_labels
from eindecomp.kernels.torch.generated.lanes import lane_source
from eindecomp.kernels.torch.generated.tiles import Blocking, tile_source
from eindecomp.lang.dtypes import dtype

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from eindecomp.kernels.torch.generated.configs import Config
    from eindecomp.kernels.torch.generated.join import FusedJoin
    from eindecomp.lang.einsum import Labels

    Tensor = Any
    Launch = Callable[[Sequence[Tensor], Sequence[Tensor], Sequence[object]], None]

_BAND = 8
_LONG = 2**31
_verdicts = Verdicts()
_lane_source, _tile_source = cache(lane_source), cache(tile_source)


def prepare(
    join: FusedJoin,
    operands: Sequence[Tensor],
    outputs: Sequence[Tensor],
    sizes: Mapping[str, int],
    partial: bool,
    config: Config | None,
) -> Launch | None:
    """How tensors of a layout are computed; None if there is nothing to compute."""
    if not is_interpreted() and outputs[0].device.type != "cuda":
        raise InputError(f"{join.op}: a generated kernel computes tensors on CUDA devices")
    if 0 in outputs[0].shape:
        return None
    if not join.is_tiled:
        return _lanes(join, operands, outputs, sizes, partial, config)
    split = split_labels(join.op, join.read, sizes)
    ways = [config] if config else _ways(join, sizes, split)
    launches: dict[Config, Launch] = {}

    def launch_of(way: Config) -> Launch:
        if way not in launches:
            launches[way] = _tiles(join, operands, outputs, sizes, split, partial, way)
        return launches[way]

    def launch(x: Sequence[Tensor], z: Sequence[Tensor], scalars: Sequence[object]) -> None:
        nonlocal chosen
        if chosen is None:
            name = _class_of(join, sizes, split, partial)
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


def _class_of(join: FusedJoin, sizes: Mapping[str, int], split: Split, partial: bool) -> str:
    """What one verdict holds for: the join, and the sizes up to the next power of two."""
    classes = [max(n - 1, 0).bit_length() for n in _extents(sizes, split)]
    return digest(repr((join.op.definition, join.dtypes, join.out, partial))) + repr(classes)


def _program(join: FusedJoin, partial: bool) -> Any:
    return join.program if partial else join.finished


def strides_of(labels: Labels, tensor: Tensor) -> dict[str, int]:
    """The stride of each label; one that stands twice walks the diagonal."""
    found: dict[str, int] = {}
    for label, stride in zip(labels, tensor.stride(), strict=True):
        found[label] = found.get(label, 0) + stride
    return found


def _scalars(join: FusedJoin, given: Sequence[object], device: Any) -> list[Tensor]:
    pairs = zip(given, join.scalars, strict=True)
    return [torch.as_tensor(x, dtype=getattr(torch, t.name), device=device) for x, t in pairs]


def _form(
    join: FusedJoin, partial: bool, groups: Sequence[Sequence[Axis]], outputs: Sequence[Tensor]
) -> Form:
    types = [*join.dtypes[: join.read], *(dtype(str(z.dtype)[6:]) for z in outputs)]
    found = accesses(types, groups)
    counts: Any = tuple(len(axes) for axes in groups)
    inputs, results = found[: join.read], found[join.read :]
    return Form(_program(join, partial), inputs, join.scalars, results, counts)


def _is_long(groups: Sequence[Sequence[Axis]]) -> bool:
    """Whether some array reaches further than 32 bits of offset."""
    count = max((len(axis.strides) for axes in groups for axis in axes), default=0)
    reach = [
        sum((axis.size - 1) * axis.strides[k] for axes in groups for axis in axes)
        for k in range(count)
    ]
    extents = [prod(axis.size for axis in axes) for axes in groups]
    return max([*reach, *extents], default=0) + 2**16 >= _LONG


def _options(config: Config) -> dict[str, Any]:
    return {} if is_interpreted() else config.options


def _on(tensor: Tensor) -> Any:
    """Make a tensor's device the one that kernels are launched on."""
    return torch.cuda.device(tensor.device) if tensor.is_cuda else nullcontext()


def _one_axis(axes: tuple[Axis, ...], arrays: int) -> tuple[Axis, ...]:
    return axes or (Axis(1, (0,) * arrays),)


# Tiles


def _tiles(
    join: FusedJoin,
    operands: Sequence[Tensor],
    outputs: Sequence[Tensor],
    sizes: Mapping[str, int],
    split: Split,
    partial: bool,
    config: Config,
) -> Launch:
    """A launch of the tile kernel in one way."""
    given = [strides_of(x, t) for x, t in zip(join.op.inputs[: join.read], operands, strict=True)]
    results = [strides_of(join.op.output, z) for z in outputs]
    split = _as_stored(split, results[0])
    copies: list[Copy | None] = [None] * join.read
    if config.copies:
        for k, source in enumerate(given):
            found = copy_of(source, sizes, split, config)
            if found is not None:
                copies[k], given[k] = found
    groups = _groups(split, sizes, [*given, *results], join.read)
    form = _form(join, partial, groups, outputs)
    if (config.pack > 1 or config.ahead) and not _is_copied(form, copies):
        plain = replace(config, pack=1, ahead=False)
        return _tiles(join, operands, outputs, sizes, split, partial, plain)
    batch, rows, cols = (prod(axis.size for axis in axes) for axes in groups[:SUMMED])
    high, wide = config.tile
    exact = rows % high == 0 and cols % wide == 0
    constants = {
        "ROWS": config.rows,
        "COLS": config.cols,
        "UNROLL": config.unroll,
        "BAND": _BAND,
        "PADDED": exact or _may_overrun(form, copies),
        "EXACT": exact,
        "LONG": _is_long(groups),
    }
    grid = (batch * -(-rows // high) * -(-cols // wide),)
    blocking = Blocking(config.high, config.wide, config.ahead, config.pack)
    kernel = compiled(_tile_source(form, blocking))
    arguments = {**constants, **_options(config)}
    integers = form.integers(groups)

    def launch(x: Sequence[Tensor], z: Sequence[Tensor], scalars: Sequence[object]) -> None:
        made = [t if copy is None else copy.make(t) for t, copy in zip(x, copies, strict=True)]
        extra = _scalars(join, scalars, z[0].device)
        with _on(z[0]):
            kernel[grid](*made, *z, *extra, *integers, **arguments)

    return launch


def _as_stored(split: Split, result: Mapping[str, int]) -> Split:
    """The same groups, rows and columns in the order in which the result's lie in memory."""
    rows, cols = (
        tuple(sorted(side, key=lambda label: -result[label])) for side in (split.rows, split.cols)
    )
    return replace(split, rows=rows, cols=cols)


def _groups(
    split: Split, sizes: Mapping[str, int], arrays: Sequence[Mapping[str, int]], read: int
) -> list[tuple[Axis, ...]]:
    """The axes of all groups: output labels as the result lies in memory, others as operand 0."""
    own = [axes_of(labels, sizes, arrays, read) for labels in split.groups[:SUMMED]]
    return [*own, _one_axis(axes_of(split.summed, sizes, arrays, 0), len(arrays))]


def _is_copied(form: Form, copies: Sequence[Copy | None]) -> bool:
    """Whether all that is loaded in the loop are copies, and the loop is one."""
    pairs = zip(copies, form.inputs, strict=True)
    return form.counts[SUMMED] == 1 and all(copy or not x.varies[SUMMED] for copy, x in pairs)


def _may_overrun(form: Form, copies: Sequence[Copy | None]) -> bool:
    """Whether inputs may be read beyond their last row and column."""
    pairs = zip(copies, form.inputs, strict=True)
    return all(copy or not (x.varies[ROWS] or x.varies[COLS]) for copy, x in pairs)


# Lanes


def _lanes(
    join: FusedJoin,
    operands: Sequence[Tensor],
    outputs: Sequence[Tensor],
    sizes: Mapping[str, int],
    partial: bool,
    config: Config | None,
) -> Launch:
    """A launch of the lane kernel."""
    given = [strides_of(x, t) for x, t in zip(join.op.inputs[: join.read], operands, strict=True)]
    arrays = [*given, *(strides_of(join.op.output, z) for z in outputs)]
    own = [label for label in join.op.output if sizes[label] != 1]
    summed = [label for label in join.op.aggregated if sizes[label] != 1]
    axes = _one_axis(axes_of(summed, sizes, arrays, 0), len(arrays))
    groups = [(), axes_of(own, sizes, arrays, join.read), (), axes]
    form = _form(join, partial, groups, outputs)
    rows, total = (prod(axis.size for axis in groups[g]) for g in (ROWS, SUMMED))
    way = config or lane_config(rows, total)
    constants = {
        "ROWS": way.rows,
        "LANES": way.cols,
        "EXACT": rows % way.rows == 0,
        "LONG": _is_long(groups),
    }
    arguments = {**constants, **_options(way)}
    kernel, integers = compiled(_lane_source(form)), form.integers(groups)
    grid = (-(-rows // way.rows),)

    def launch(x: Sequence[Tensor], z: Sequence[Tensor], scalars: Sequence[object]) -> None:
        extra = _scalars(join, scalars, z[0].device)
        with _on(z[0]):
            kernel[grid](*x, *z, *extra, *integers, **arguments)

    return launch
