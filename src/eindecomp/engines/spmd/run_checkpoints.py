"""Checkpoints within one long run: what every rank holds once chosen tensors are computed.

A run is cut behind the steps that complete these tensors; no communication is under way there. Each
rank writes what it holds that is read later. A rerun of the same plan on the same inputs, which are
known by a digest of what ranks load, begins behind the last cut that is complete; what was damaged
since is computed again. A run that comes to its end removes what it has written. Inputs are loaded
again, and files never unpickled.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from eindecomp.engines.engine import Ranks, agree
from eindecomp.engines.safetensors_file import map_file, tensors_of
from eindecomp.engines.spmd.rank_row import Do, RankMemory
from eindecomp.engines.step_folders import SavedStep, StepFolders, step_number
from eindecomp.engines.tensor import as_numpy
from eindecomp.engines.whole_files import remove
from eindecomp.errors import InputError, suggest
from eindecomp.kernels.library import KernelLibrary
from eindecomp.lang.dtypes import Array
from eindecomp.layout.boxes import shape_of
from eindecomp.tra.program.program import Program
from eindecomp.tra.program.steps import AllGather, Compute, Free, ReduceScatter, Role

Call = tuple[int, Do, bool]
"""A step, what is done in it, and whether others may have to be waited for."""


def cuts_behind(program: Program, names: Sequence[str] | str) -> tuple[int, ...]:
    """The steps that complete tensors, in order."""
    completed: dict[str, int] = {}
    for number, step in enumerate(program.steps):
        if isinstance(step, Compute | ReduceScatter | AllGather):
            buffer = program.buffers[step.into]
            completed |= {buffer.tensor: number} if buffer.role is Role.HOME else {}
    given = [name.strip() for name in (names.split(",") if isinstance(names, str) else names)]
    for name in given:
        if name not in completed:
            near = suggest(name, completed)
            raise InputError(f"checkpoint_at: the planned graph computes no {name!r}{near}")
    return tuple(sorted({completed[name] for name in given}))


def in_segments(calls: Sequence[Call], cuts: Sequence[int]) -> list[list[Call]]:
    """Calls in their order, but those of steps before a cut before those of steps behind it.

    A step reads only what earlier ones have written, so that any such order is right.
    """
    segments: list[list[Call]] = [[] for _ in range(len(cuts) + 1)]
    for call in calls:
        segments[sum(call[0] > cut for cut in cuts)].append(call)
    return segments


class RunCheckpoints:
    """The checkpoints of one run on one rank; all ranks call it together."""

    def __init__(
        self,
        folder: Path,
        program: Program,
        cuts: Sequence[int],
        ranks: Ranks,
        loaded: Iterable[Any],
        scalars: Sequence[object],
        library: KernelLibrary,
    ) -> None:
        """`loaded` are this rank's blocks of inputs, which the library computes."""
        self.program, self.cuts, self.ranks, self.library = program, cuts, ranks, library
        own = blake2b(digest_size=16)
        with ranks.not_stuck():
            for block in loaded:
                own.update(np.ascontiguousarray(as_numpy(block)).reshape(-1).view(np.uint8).data)
        what = repr((program.mesh, program.buffers, program.steps, list(cuts), list(scalars)))
        told = [str(program.graph).encode(), what.encode(), *ranks.gather_bytes(own.digest())]
        self.digest = blake2b(b"\0".join(told), digest_size=16).hexdigest()
        self.steps = StepFolders(folder / f"run-{self.digest}", ranks)

    def _live(self, cut: int) -> list[int]:
        """The buffers that are held behind a cut."""
        held: set[int] = set()
        for step in self.program.steps[: self.cuts[cut] + 1]:
            if isinstance(step, Free):
                held.discard(step.buffer)
            else:
                held.add(step.into)
        return sorted(held)

    def _is_given(self, buffer: int) -> bool:
        return self.program.buffers[buffer].role is Role.GIVEN

    def restore(self, memory: RankMemory) -> tuple[int, set[int]]:
        """Take what the last undamaged checkpoint has; damage is told in a warning.

        Gives the segment to begin with, and the inputs that have to be loaded for it, as buffers.
        """
        cuts = {cut: number for number, cut in enumerate(self.cuts)}
        for place in self.steps.places():
            cut = cuts.get(step_number(place) or 0)
            if cut is None:
                continue
            live = self._live(cut)
            try:
                step = self.steps.read(place)
                saved = agree(self.ranks, lambda step=step, live=live: self._read(step, live))
            except InputError as error:
                if self.ranks.rank == 0:
                    told = f"a checkpoint is damaged: {error}; what it had is computed again"
                    warnings.warn(told, RuntimeWarning, stacklevel=2)
                continue
            for number, arrays in saved.items():
                memory.held[number] = tuple(map(self.library.from_numpy, arrays))
                memory.grow(self.program.buffers[number].nbytes(self.program.mesh, self.ranks.rank))
            return cut + 1, {buffer for buffer in live if self._is_given(buffer)}
        return 0, set()

    def _read(self, step: SavedStep, live: Sequence[int]) -> dict[int, tuple[Array, ...]]:
        """The buffers that this rank held after a cut, except inputs."""
        path = step.shard(self.ranks.rank)
        if step.manifest.get("run") != self.digest:
            raise InputError(f"{step.place} is not of this run")
        (tensors, _), content = tensors_of(path), map_file(path)
        held: dict[int, tuple[Array, ...]] = {}
        for number in live:
            buffer = self.program.buffers[number]
            if self._is_given(number):
                continue
            shape = shape_of(buffer.box(self.program.mesh, self.ranks.rank))
            # The digests of the run and of its files vouch for names and sizes.
            held[number] = tuple(
                np.array(tensors[f"{number}.{k}"].view(content)).view(dtype).reshape(shape)
                for k, dtype in enumerate(buffer.types)
            )
        return held

    def save(self, memory: RankMemory, cut: int) -> None:
        """Write what this rank holds behind a cut; it replaces what was written before.

        A run goes on, with a warning, if that is impossible, as on a full disk.
        """
        arrays = {
            f"{number}.{k}": np.ascontiguousarray(as_numpy(array)).reshape(-1).view(np.uint8)
            for number in self._live(cut)
            if not self._is_given(number)
            for k, array in enumerate(memory.held[number])
        }
        try:
            self.steps.write(self.cuts[cut], arrays, {}, {"run": self.digest})
        except InputError as error:
            if self.ranks.rank == 0:
                warnings.warn(f"no checkpoint: {error}", RuntimeWarning, stacklevel=2)

    def end(self) -> None:
        """The run has come to its end: remove what it has written."""
        if self.ranks.rank == 0 and self.steps.path.is_dir():
            self.steps.prune()
            remove(self.steps.path)
