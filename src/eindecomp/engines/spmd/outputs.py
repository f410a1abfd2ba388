"""Ranks that write outputs to files, each its own block."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eindecomp.engines.ranks import agree, at_first, common_token, writers
from eindecomp.engines.whole_folder import beside, put_in_place, remove
from eindecomp.engines.write_outputs import can_write_at_once, create_file, write_block
from eindecomp.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from eindecomp.engines.ranks import Ranks
    from eindecomp.engines.tensor import Tensor


def write_outputs(ranks: Ranks, outputs: Mapping[str, Path], tensors: Mapping[str, Tensor]) -> None:
    """Write outputs; all ranks do so together. A file is there when all of it is."""
    for name, path in outputs.items():
        token = common_token(ranks)
        part = beside(path, token)
        try:
            _write(ranks, tensors[name], part, path.suffix)
            at_first(ranks, lambda part=part, path=path: put_in_place(part, path))
        except InputError as error:
            why = str(error).removeprefix(f"{part}: ")
            raise InputError(f"outputs: {name} cannot be written to {path}: {why}") from error
        finally:
            if ranks.rank == 0:
                remove(part)


def _write(ranks: Ranks, tensor: Tensor, part: Path, kind: str) -> None:
    boxes = list(writers(tensor.mesh, tensor.tilings[0]))
    at_first(ranks, lambda: create_file(part, kind, tensor.shape, tensor.dtype, boxes))
    own = ranks.own_block(tensor)

    def write() -> None:
        if own is not None:
            write_block(part, kind, *own)

    if can_write_at_once(part.with_suffix(kind), tensor.shape, boxes):
        agree(ranks, write)
        return
    for turn in range(ranks.size):  # tiles that share a chunk are written one after another
        agree(ranks, write if turn == ranks.rank else lambda: None)
