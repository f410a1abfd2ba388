"""Contents: what lies where while the actions of a schedule are carried out one by one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from eindecomp.tra.paging.schedule import Fetch, Keep, Read, Run, Store
from eindecomp.tra.paging.workload import Begins, Ends

if TYPE_CHECKING:
    from collections.abc import Collection

    from eindecomp.tra.paging.schedule import Action
    from eindecomp.tra.paging.workload import Workload


@dataclass
class Contents:
    """Parts of tensors in the arena, in staging blocks, and made tensors on the host."""

    workload: Workload
    arena: list[tuple[int, int, int, int]] = field(default_factory=list[tuple[int, int, int, int]])
    """Start, end, the tensor, and where its window begins; no two overlap."""
    blocks: dict[int, tuple[int, int, int]] = field(default_factory=dict[int, tuple[int, int, int]])
    """The tensor, the start and the bytes that a block holds."""
    copies: set[int] = field(default_factory=set[int])

    def carry_out(self, action: Action) -> str:
        """Change the contents as an action does; says what it does not find, if anything."""
        match action:
            case Read():
                if self._begins(action.tensor) is not Begins.DISK:
                    return f"{self._name(action.tensor)} is not on disk"
                self.blocks[action.block] = action.tensor, action.start, action.nbytes
            case Fetch(tensor=tensor, start=start, nbytes=nbytes):
                if not self._has_source(action):
                    return f"{self._name(tensor)} is not where it is fetched from"
                self.write(tensor, action.offset, start, nbytes)
            case Store():
                if not self.holds(action.tensor, action.offset):
                    return f"{self._name(action.tensor)} is not where it is stored from"
                self.copies.add(action.tensor)
            case Keep():
                return self._keep(action)
            case Run():
                return self._run(action)
        return ""

    def _keep(self, action: Keep) -> str:
        tensor = action.tensor
        if not self.holds(tensor, action.offset):
            return f"{self._name(tensor)} is not where it is kept from"
        if self.workload.tensors[action.renews].renewed_by != tensor:
            return f"{self._name(tensor)} does not renew {self._name(action.renews)}"
        self.write(tensor, action.into, 0, action.nbytes)
        return ""

    def _run(self, action: Run) -> str:
        task = self.workload.tasks[action.task]
        for tensor, offset in zip(task.reads, action.reads, strict=True):
            if not self.holds(tensor, offset):
                return f"{self._name(tensor)} is not where {task.name} reads it"
        for tensor, offset in zip(task.writes, action.writes, strict=True):
            self.write(tensor, offset, 0, self.workload.tensors[tensor].nbytes)
        return ""

    def write(self, tensor: int, offset: int, start: int, nbytes: int) -> None:
        """A part of a tensor comes to its window, over whatever was there."""
        low, high = offset + start, offset + start + nbytes
        kept: list[tuple[int, int, int, int]] = []
        for begin, end, other, base in self.arena:
            if begin < min(end, low):
                kept.append((begin, min(end, low), other, base))
            if max(begin, high) < end:
                kept.append((max(begin, high), end, other, base))
        self.arena = [*kept, (low, high, tensor, offset)]

    def holds(self, tensor: int, offset: int) -> bool:
        """Whether all bytes of a tensor are in a window."""
        there = sum(end - begin for begin, end, *what in self.arena if what == [tensor, offset])
        return there == self.workload.tensors[tensor].nbytes

    def missing_on_host(self, kept: Collection[int]) -> list[str]:
        """The names of the tensors that are not on the host but must be, unless they are kept."""
        return [
            tensor.name
            for tensor in self.workload.tensors
            if tensor.made and tensor.ends is Ends.HOST
            if tensor.nbytes and tensor.number not in self.copies and tensor.number not in kept
        ]

    def _has_source(self, fetch: Fetch) -> bool:
        if fetch.block is not None:
            return self.blocks.get(fetch.block) == (fetch.tensor, fetch.start, fetch.nbytes)
        return self._begins(fetch.tensor) is Begins.HOST or fetch.tensor in self.copies

    def _begins(self, tensor: int) -> Begins:
        return self.workload.tensors[tensor].begins

    def _name(self, tensor: int) -> str:
        return self.workload.tensors[tensor].name
