"""Bytes of `ed.redistribution` beside those of DTensor's own redistribute, on pairs of placements.

DTensor runs on one device of a pretended group, on tensors without elements: it issues its
collectives as on GPUs (NCCL), where it has an all-to-all, and these are counted. It has two
planners: the greedy one that it uses unless told otherwise, and the search that
`use_min_cost_redistribution_plan` switches on, exponential in the dimensions of the mesh. All
dimensions of the mesh are flattened for it, too, so that it may merge collectives.
"""

from __future__ import annotations

import argparse
import logging
import random
import warnings
from collections.abc import Iterator
from itertools import combinations, product
from statistics import mean
from time import perf_counter
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor._redistribute import (
    _gen_transform_infos,
    use_min_cost_redistribution_plan,
)

import eindecomp as ed
from eindecomp.frontends.torch.verify import Recorder, pretended_group
from eindecomp.layout.boxes import shape_of
from eindecomp.layout.tiling import box_on

MESHES = [(2, 4), (4, 4), (2, 2, 2), (2, 2, 4)]
SHAPES = [(256, 256), (64, 64, 64)]


def device_mesh(sizes: tuple[int, ...]) -> DeviceMesh:
    """A mesh whose dimensions are flattened, too, so that DTensor can all-reduce along several."""
    names = "xyz"[: len(sizes)]
    ranks = torch.arange(torch.Size(sizes).numel()).reshape(sizes)
    mesh = DeviceMesh("cuda", ranks, mesh_dim_names=tuple(names))
    for some in (own for n in range(2, len(sizes) + 1) for own in combinations(names, n)):
        mesh[some]._flatten("".join(some))
    return mesh


def pairs(rank: int, axes: int, *, partial: bool) -> Iterator[tuple[Any, Any]]:
    """All pairs of placements but equal ones; with `partial`, those whose source is partial."""
    plain = [Replicate(), *(Shard(dim) for dim in range(rank))]
    for source in product([*plain, Partial()] if partial else plain, repeat=axes):
        if partial and not any(own.is_partial() for own in source):
            continue
        for target in product(plain, repeat=axes):
            if source != target:
                yield source, target


def counted(mesh: DeviceMesh, shape: tuple[int, ...], way: Any, target: Any, best: bool) -> int:
    """What DTensor moves, in all."""
    box = box_on(way.mesh, way.source.held.cut, 0)
    local = torch.empty(shape_of(box), device="meta")
    whole = torch.empty(shape, device="meta")
    start = DTensor.from_local(
        local,
        mesh,
        way.source.placements,
        run_check=False,
        shape=whole.shape,
        stride=whole.stride(),
    )
    _gen_transform_infos.cache_clear()  # which does not know the planner
    with Recorder() as recorder, use_min_cost_redistribution_plan(best):
        start.redistribute(placements=target)
        return sum(each.nbytes for each in recorder.take())


def row(sizes: tuple[int, ...], shape: tuple[int, ...], most: int, *, partial: bool) -> None:
    every = [*pairs(len(shape), len(sizes), partial=partial)]
    some = every if len(every) <= most else random.Random(0).sample(every, most)  # noqa: S311
    spent = {"ours": 0.0, "greedy": 0.0, "search": 0.0}
    ratios: dict[str, list[float]] = {"collectives": [], "greedy": [], "search": []}
    direct = 0
    with pretended_group(torch.Size(sizes).numel()):
        mesh = device_mesh(sizes)
        for source, target in some:
            start = perf_counter()
            way = ed.redistribution(shape, mesh, source, target)
            spent["ours"] += perf_counter() - start
            direct += way.is_direct
            theirs = {"collectives": way.collective_bytes or 0}
            for name in ("greedy", "search"):
                start = perf_counter()
                theirs[name] = counted(mesh, shape, way, target, name == "search")
                spent[name] += perf_counter() - start
            for name, own in theirs.items():
                assert own >= way.bytes, (source, target)
                ratios[name].append(own / way.bytes if way.bytes else 1.0 if not own else 99.0)
    what = "×".join(map(str, sizes)), "×".join(map(str, shape)), "partial" if partial else "plain"
    print(f"{' '.join(what)}: {len(some)} of {len(every)} pairs, {direct} of them direct")
    for name, own in ratios.items():
        more = sum(ratio > 1 for ratio in own)
        print(
            f"  {name:12} mean {mean(own):5.2f}, worst {max(own):5.2f}; more bytes than ours on "
            f"{more}, as many on {len(own) - more}, fewer on {sum(r < 1 for r in own)}"
        )
        source, target = some[own.index(max(own))]
        print(f"{'':15}worst from {source} to {target}")
    each = {name: 1e3 * seconds / len(some) for name, seconds in spent.items()}
    print("  ms a pair: " + ", ".join(f"{name} {ms:.1f}" for name, ms in each.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--most", type=int, default=1000, help="pairs tried of each row, at random")
    parser.add_argument("--only", choices=["plain", "partial"], help="which sources")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    kinds = [given.only == "partial"] if given.only else [False, True]
    for partial, sizes, shape in product(kinds, MESHES, SHAPES):
        row(sizes, shape, given.most, partial=partial)


if __name__ == "__main__":
    main()
