"""Compiled calls one after another, some of them again and again, as one compiled call.

A script is made of phases: calls that are repeated together so many times. All it needs is in one
list of integers: a header, then the arguments of all calls, then the places that addresses are
written to before it starts, then the phases with the steps that addresses take at each repetition.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from eindecomp.kernels.cpu.compiling.compile import compile_source
from eindecomp.kernels.cpu.loops.launch import LoopsCall

if TYPE_CHECKING:
    from collections.abc import Sequence

TEMPORARY = -1
"""The scratch memory of temporaries; that of the calls themselves comes after it."""
_OWN = -2
ALIGNMENT = 64
"""Bytes of a line of the cache, at which every temporary begins."""
_LIMIT = 1 << 13  # integers of a call
_PLACES, _PHASES, _SCRATCH, _FIRST = 0, 2, 4, 5

_SOURCE = f"""
def kernel(at):
    start = (reload_int64(at, {_SCRATCH}) + {ALIGNMENT - 1}) // {ALIGNMENT} * {ALIGNMENT}
    store_int64(at, {_SCRATCH}, start)
    slot = load_int64(at, {_PLACES + 1})
    for place in range(load_int64(at, {_PLACES})):
        base = reload_int64(at, load_int64(at, slot + 1))
        store_int64(at, load_int64(at, slot), base + load_int64(at, slot + 2))
        slot += 3
    slot = load_int64(at, {_PHASES + 1})
    for phase in range(load_int64(at, {_PHASES})):
        calls = load_int64(at, slot + 1)
        for turn in range(load_int64(at, slot)):
            here = slot + 3
            for number in range(calls):
                call_code(load_int64(at, here), at + 8 * load_int64(at, here + 1))
                moved = load_int64(at, here + 2)
                for k in range(moved):
                    where = load_int64(at, here + 3 + 2 * k)
                    address = reload_int64(at, where) + load_int64(at, here + 4 + 2 * k)
                    store_int64(at, where, address)
                here += 3 + 2 * moved
        slot += load_int64(at, slot + 2)
"""


@dataclass(frozen=True, slots=True)
class Address:
    """Where an array begins: so far into an input, the output or scratch, and on at each turn."""

    array: int
    """The number of the input, or of the output, which comes after them; or `TEMPORARY`."""
    offset: int = 0
    turn: int = 0
    """Bytes from one repetition to the next."""


@dataclass(slots=True)
class Script:
    """The calls so far, and the scratch memory that they need."""

    arrays: int
    """How many inputs and outputs there are."""
    _used: int = 0
    _own: int = 0
    _uses_blas: bool = False
    _arguments: list[int] = field(default_factory=list[int])
    _places: list[tuple[int, Address]] = field(default_factory=list[tuple[int, Address]])
    _phases: list[list[int]] = field(default_factory=list[list[int]])
    _called: list[LoopsCall] = field(default_factory=list[LoopsCall])

    def reserve(self, nbytes: int) -> Address:
        """Scratch memory for a temporary."""
        found = Address(TEMPORARY, self._used)
        self._used += -(-nbytes // ALIGNMENT) * ALIGNMENT
        return found

    def begin(self, times: int) -> None:
        """Begin a phase whose calls are repeated together."""
        self._phases.append([times, 0, 3])

    def call(self, call: LoopsCall, arrays: Sequence[Address]) -> None:
        """Add a call that reads and writes arrays, in its own order."""
        start = _FIRST + self.arrays + len(self._arguments)
        self._arguments += [int(number) for number in call.integers]
        moved: list[int] = []
        for slot, address in zip(call.addresses, arrays, strict=False):
            self._places.append((start + slot, address))
            if address.turn:
                moved += [start + slot, address.turn]
        if call.scratch:
            # Calls follow one another: all of them use the same, after all temporaries.
            self._own = max(self._own, call.scratch)
            self._places.append((start + call.addresses[-1], Address(_OWN)))
        self._uses_blas |= call.uses_blas
        self._called.append(call)
        phase = self._phases[-1]
        phase += [call.function.address, start, len(moved) // 2, *moved]
        phase[1] += 1
        phase[2] = len(phase)

    @property
    def scratch(self) -> int:
        """Bytes of scratch memory."""
        return self._used + self._own + ALIGNMENT

    def finished(self) -> LoopsCall | None:
        """The call of the whole script; None if it is too long for one."""
        places = _FIRST + self.arrays + len(self._arguments)
        phases = places + 3 * len(self._places)
        header = [len(self._places), places, len(self._phases), phases]
        integers = [*header, *[0] * (1 + self.arrays), *self._arguments]
        for slot, address in self._places:
            base = _SCRATCH if address.array < 0 else _FIRST + address.array
            integers += [slot, base, self._used if address.array == _OWN else address.offset]
        integers += [number for phase in self._phases for number in phase]
        if len(integers) > _LIMIT:
            return None
        addresses = [*range(_FIRST, _FIRST + self.arrays), _SCRATCH]
        function = compile_source(_SOURCE, "calls of a contraction")
        filled = np.array(integers, np.int64)
        called = [each for call in self._called for each in (call.function, *call.calls)]
        own = tuple({id(each): each for each in called}.values())  # functions have no hash
        return LoopsCall(function, filled, addresses, self.scratch, (), 0, self._uses_blas, own)
