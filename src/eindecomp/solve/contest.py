"""Reads and writes the files of the ASPLOS/EuroSys 2025 contest on intra-operator parallelism.

The files are untrusted: everything is checked, and errors say where in the file they are.
"""

from __future__ import annotations

import gzip
import zlib
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import orjson

from eindecomp.errors import ProblemError
from eindecomp.solve.problem.arrays import INFINITE, Ints, offsets
from eindecomp.solve.problem.problem import Problem
from eindecomp.solve.run import Solution

UNREACHABLE = 10**18  # the contest writes ∞ as this or more
_GZIP = b"\x1f\x8b"
# The largest instance of the contest has 93 MB, with 6.5 million entries in 400,000 lists.
_MAX_BYTES = 1 << 28
_MOST = {(b",", "entries"): 1 << 24, (b"[", "lists"): 1 << 21, (b"{", "objects"): 1000}


def read_contest(path: str | Path | BinaryIO) -> Problem:
    """The problem in a contest file, JSON or gzipped JSON.

    Args:
        path: The file, such as `"asplos-2025-iopddl-A.json.gz"`, or an open one.

    Raises:
        ProblemError: It is not such a file.

    Examples:
        >>> from io import BytesIO
        >>> nodes = '{"costs": [[3, 1]], "usages": [[1, 1]], "intervals": [[0, 1]]}'
        >>> text = f'{{"problem": {{"nodes": {nodes}, "edges": {{"nodes": [], "costs": []}}'
        >>> read_contest(BytesIO(f'{text}, "usage_limit": 9}}}}'.encode())).size
        1
    """
    if isinstance(path, str | Path):
        path = Path(path)
        with path.open("rb") as file:
            return parse_contest(file, path.name)
    return parse_contest(path, "standard input")


def parse_contest(file: BinaryIO, name: str) -> Problem:
    """The problem in an open file.

    Args:
        file: The file, such as `open("a.json", "rb")`.
        name: What errors call it, such as `"a.json"`.

    Raises:
        ProblemError: It is not such a file.

    Examples:
        >>> from io import BytesIO
        >>> parse_contest(BytesIO(b"[]"), "a.json")
        Traceback (most recent call last):
        eindecomp.errors.ProblemError: a.json: an object is needed here
    """
    try:
        document: Any = orjson.loads(_read_bytes(file, name))
    except orjson.JSONDecodeError as error:
        raise ProblemError(f"{name}: not JSON: {error}") from None
    body = _field(name, document, "problem", dict)
    nodes = _field(f"{name}: problem", body, "nodes", dict)
    edges = _field(f"{name}: problem", body, "edges", dict)
    sizes, unary = _ragged(name, nodes, "nodes.costs")
    usage_sizes, usage = _ragged(name, nodes, "nodes.usages")
    if not np.array_equal(sizes, usage_sizes):
        raise ProblemError(f"{name}: nodes.usages and nodes.costs differ in length")
    table_sizes, tables = _ragged(name, edges, "edges.costs")
    limit = _field(f"{name}: problem", body, "usage_limit", int)
    pairs = _pairs(name, edges, "edges.nodes")
    if len(pairs) != table_sizes.size:
        raise ProblemError(f"{name}: {len(pairs)} edges but {table_sizes.size} tables")
    try:
        return Problem(
            offset=offsets(sizes),
            unary=np.where(unary >= UNREACHABLE, INFINITE, unary),
            edges=pairs,
            table_of=np.arange(len(pairs)),
            table_offset=offsets(table_sizes),
            tables=np.where(tables >= UNREACHABLE, INFINITE, tables),
            usage=usage,
            intervals=_pairs(name, nodes, "nodes.intervals"),
            limit=limit,
        )
    except ProblemError as error:
        raise ProblemError(f"{name}: {error}") from None


def solution_json(solution: Solution, feasible: bool) -> bytes:
    """Cost, bound, feasibility and choices as JSON; an infinite number becomes null.

    Args:
        solution: What `minimize` found, such as `minimize(problem)`.
        feasible: Whether its choice is feasible, such as `problem.feasible(solution.choice)`.

    Examples:
        >>> import eindecomp as ed
        >>> solution_json(ed.solve.minimize(ed.solve.Problem.of([[3, 1]])), True)[:22]
        b'{"cost":1,"bound":1,"f'
    """
    document = {
        "cost": _finite(solution.cost),
        "bound": _finite(solution.bound),
        "feasible": feasible,
        "solution": solution.choice.tolist(),
    }
    return orjson.dumps(document)


def _read_bytes(file: BinaryIO, name: str) -> bytes:
    """The file's content, inflated if gzipped; raises if it is far larger than any instance."""
    content = file.read(_MAX_BYTES + 1)
    if content.startswith(_GZIP):
        try:
            content = gzip.GzipFile(fileobj=BytesIO(content)).read(_MAX_BYTES + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise ProblemError(f"{name}: cannot be inflated: {error}") from None
    if len(content) > _MAX_BYTES:
        raise ProblemError(f"{name}: larger than {_MAX_BYTES} bytes")
    # Parsed, every number and every list takes many times the bytes of its text.
    for (mark, what), most in _MOST.items():
        if (count := content.count(mark)) > most:
            raise ProblemError(f"{name}: {count:,} {what}, but at most {most:,} are allowed")
    return content


def _field(where: str, container: Any, name: str, kind: type) -> Any:
    if not isinstance(container, dict):
        raise ProblemError(f"{where}: an object is needed here")
    value: Any = cast("dict[str, Any]", container).get(name)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise ProblemError(f"{where}: {name!r} must be of type {kind.__name__}")
    return value


def _ragged(file: str, container: Any, name: str) -> tuple[Ints, Ints]:
    """The lengths of a list of lists of integers, and all its integers."""
    rows = _field(file, container, name.rpartition(".")[2], list)
    if bad := [i for i, row in enumerate(rows) if not isinstance(row, list)]:
        raise ProblemError(f"{file}: {name}[{bad[0]}] is not a list")
    sizes = np.fromiter((len(row) for row in rows), dtype=np.int64, count=len(rows))
    flat: list[Any] = [entry for row in rows for entry in row]
    # set(map(type, ...)) is the only check of types that runs over millions at C speed.
    if not set(map(type, flat)) <= {int}:
        raise ProblemError(f"{file}: {name} holds something other than integers")
    try:
        return sizes, np.array(flat, dtype=np.int64)
    except OverflowError:
        raise ProblemError(f"{file}: {name} holds an integer beyond 64 bits") from None


def _pairs(file: str, container: Any, name: str) -> Ints:
    sizes, flat = _ragged(file, container, name)
    if bad := np.flatnonzero(sizes != 2).tolist():
        raise ProblemError(f"{file}: {name}[{bad[0]}] is not a pair")
    return flat.reshape(-1, 2)


def _finite(number: int | float) -> int | float | None:
    return number if np.isfinite(number) else None
