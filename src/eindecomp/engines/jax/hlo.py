"""Counts what collectives move in a program that XLA has compiled, from its text.

XLA calls its textual form HLO. What is counted are the bytes that all devices receive together, as
the best known algorithms need: in a group of n devices, an all-gather brings each (n−1)/n of its
result, a reduce-scatter n−1 times its result, an all-to-all (n−1)/n of its operand, an all-reduce,
which is a reduce-scatter and an all-gather, 2(n−1)/n of its operand, and a permutation what it
sends to others.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

from eindecomp.errors import InputError
from eindecomp.planner.comparison import in_group

KINDS = ("all-gather", "reduce-scatter", "all-reduce", "all-to-all", "collective-permute")
SCOPE = "vertex."
"""What the name of a vertex begins with in the names of operations."""

_OPERATION = re.compile(r" = (.+?) ([a-z][\w\-]*)\((.*)")  # its shape, name, and what follows
_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\{$")
_ARRAY = re.compile(r"\b(pred|token|(?:bf|f|s|u|c)(\d+)\w*)\[([\d,<=]*)\]")
_CALLED = re.compile(r"(calls|to_apply|body|true_computation|false_computation)=%?([\w.\-]+)")
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_OP_NAME = re.compile(r'op_name="((?:[^"\\]|\\.)*)"')
_LISTED = re.compile(r"replica_groups=\{((?:\{[\d,]*\},?)*)\}")
_IOTA = re.compile(r"replica_groups=\[(\d+),(\d+)\]<=")
_OF_MESH = re.compile(r"replica_groups=mesh\[([^\]]*)\][^{]*\{([^}]*)\}")
_AXIS = re.compile(r"'([^']+)'(?:=(\d+)|:\(\d+\)(\d+))?")
_PAIRS = re.compile(r"source_target_pairs=\{((?:\{\d+,\d+\},?)*)\}")
_DEVICES = re.compile(r"(?:num_partitions|replica_count)=(\d+)")


@dataclass(frozen=True, slots=True)
class CompiledCollective:
    """One collective of a compiled program."""

    kind: str
    """One of `KINDS`."""
    bytes: int
    """What all devices receive, each time it is carried out, times `times`."""
    times: int
    """How often: more than once in a loop."""
    vertex: str | None
    """The vertex of a plan for which it is, where engine `jax` has made the program."""


def count_collectives(compiled: Any) -> list[CompiledCollective]:
    """The collectives of a program: what `jax.jit(f).lower(…).compile()` gives, or its text.

    >>> [gather] = count_collectives('''
    ... HloModule m, num_partitions=4
    ... ENTRY %main (p: f32[8]) -> f32[32] {
    ...   ROOT %g = f32[32]{0} all-gather(%p), replica_groups={{0,1,2,3}}, dimensions={0}
    ... }''')
    >>> gather.kind, gather.bytes
    ('all-gather', 384)
    """
    text = compiled if isinstance(compiled, str) else compiled.as_text()
    if not isinstance(text, str) or "HloModule" not in text:
        raise InputError("collectives are counted in a compiled program of XLA, or in its text")
    reader = _Reader(text)
    return list(reader.read(reader.entry, 1))


def bytes_by_vertex(collectives: Iterable[CompiledCollective]) -> dict[str, int]:
    """The bytes for each vertex; `None` is the name of what is for no vertex."""
    total: Counter[str] = Counter()
    for each in collectives:
        total[str(each.vertex)] += each.bytes
    return dict(total)


class _Reader:
    """The computations of a program, by name."""

    def __init__(self, text: str) -> None:
        self.lines: dict[str, list[str]] = {}
        self.entry = ""
        header, current = "", None
        for line in text.splitlines():
            if line.startswith("HloModule"):
                header = line
            elif (opened := _COMPUTATION.match(line)) is not None:
                current = self.lines.setdefault(opened[2], [])
                self.entry = opened[2] if opened[1] else self.entry
            elif current is not None and " = " in line:
                current.append(line)
        self.devices = prod(int(count) for count in _DEVICES.findall(header))

    def read(self, computation: str, times: int) -> Iterator[CompiledCollective]:
        """The collectives of a computation and of all that it calls."""
        for line in self.lines.get(computation, ()):
            parts = _OPERATION.search(line)
            if parts is None:
                continue
            shape, op, rest = parts.groups()
            kind = op.removesuffix("-start")
            if kind in KINDS:
                count = times * self._received(kind, _result(kind, op, shape), rest)
                yield CompiledCollective(kind, count, times, self._vertex(computation, line))
                continue
            if op.endswith("-done"):
                continue
            trips = _TRIPS.search(rest)
            inside = times * (int(trips[1]) if op == "while" and trips else 1)
            called = [name for _, name in _CALLED.findall(rest)]
            for branches in _BRANCHES.findall(rest):
                called += [name.strip(" %") for name in branches.split(",")]
            for name in called:
                yield from self.read(name, inside)

    def _vertex(self, computation: str, line: str) -> str | None:
        """For which vertex a collective is: that in its name, or in that of its first reader.

        From some version on XLA calls a collective of an argument by that argument.
        """
        while line:
            scopes = [part for part in _name(line).split("/") if part.startswith(SCOPE)]
            if scopes:
                return scopes[0].removeprefix(SCOPE)
            made = line.split(" = ")[0].split()[-1]
            reads = re.compile(rf"[(, ]{re.escape(made)}[,)]")
            line = next((each for each in self.lines[computation] if reads.search(each)), "")
        return None

    def _received(self, kind: str, size: int, rest: str) -> int:
        """The bytes that all devices receive of a result of `size` bytes."""
        if kind == "collective-permute":
            pairs = _PAIRS.search(rest)
            listed = re.findall(r"\{(\d+),(\d+)\}", pairs[1]) if pairs else []
            return size * sum(source != target for source, target in listed)
        return sum(in_group(kind, n, size) for n in self._groups(rest))

    def _groups(self, rest: str) -> list[int]:
        """How many devices each group has."""
        if (iota := _IOTA.search(rest)) is not None:
            return [int(iota[2])] * int(iota[1])
        if (mesh := _OF_MESH.search(rest)) is not None:
            return _along_axes(mesh[1], mesh[2])
        if (listed := _LISTED.search(rest)) is None:
            raise InputError(f"replica groups of an unknown form: {rest[:200]}")
        groups = re.findall(r"\{([\d,]*)\}", listed[1])
        return [own.count(",") + 1 for own in groups if own] or [self.devices]


def _along_axes(mesh: str, axes: str) -> list[int]:
    """How many devices each group along axes of a mesh has; an axis may be meant in part.

    >>> _along_axes("'x'=4,'y'=2", "'x':(1)2,'y'")
    [4, 4]
    """
    sizes = {name: int(size) for name, size, _ in _AXIS.findall(mesh)}
    group = prod(int(part) if part else sizes[name] for name, _, part in _AXIS.findall(axes))
    return [group] * (prod(sizes.values()) // group)


def _result(kind: str, op: str, shape: str) -> int:
    """The bytes of a collective's result on one device.

    A `-start` gives its operands first, then results, and a permutation's two more numbers; only an
    all-reduce's gives results alone.
    """
    arrays = _ARRAY.findall(shape)
    if op == "collective-permute-start":
        arrays = arrays[1:2]
    elif op.endswith("-start") and kind != "all-reduce":
        arrays = arrays[len(arrays) // 2 :]
    return sum(_bytes(*each) for each in arrays)


def _bytes(name: str, bits: str, sides: str) -> int:
    if name == "token":
        return 0
    width = 8 if name == "pred" else int(bits)
    count = prod(int(side.lstrip("<=")) for side in sides.split(",")) if sides else 1
    return -(-count * width // 8)


def _name(rest: str) -> str:
    named = _OP_NAME.search(rest)
    if named is None:
        return ""
    # Letters beyond ASCII come as the bytes of their UTF-8, escaped.
    escaped = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), named[1])
    try:
        return escaped.encode("latin-1").decode()
    except UnicodeError:
        return escaped
