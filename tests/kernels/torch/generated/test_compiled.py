"""What Triton's compiler makes of generated kernels for a card that need not be here."""

from __future__ import annotations

import re
from typing import Any

import pytest
from random_tiles import LOGSUMEXP

from eindecomp.lang.dtypes import dtype
from eindecomp.lang.einsum import EinSum
from eindecomp.lang.monoid import MAX
from eindecomp.lang.scalar import Arg, Tuple, call

pytest.importorskip("torch", reason="kernels over torch's tensors need torch")
triton = pytest.importorskip("triton", reason="generated kernels need Triton")

from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

from eindecomp.kernels.torch.generated.form import (  # noqa: E402
    JoinAxis,
    JoinForm,
    Tuning,
    accesses,
)
from eindecomp.kernels.torch.generated.launch import FusedJoin, compiled  # noqa: E402
from eindecomp.kernels.torch.generated.tile_kernel import CONSTANTS, tile_source  # noqa: E402

F4 = dtype("float32")
x, y = Arg(0), Arg(1)
HOPPER = GPUTarget("cuda", 90, 32)
pytestmark = pytest.mark.skipif(
    "nvidia" not in triton.backends.backends, reason="this Triton compiles for no NVIDIA card"
)


def form_of(join: FusedJoin, groups: list[tuple[JoinAxis, ...]]) -> JoinForm:
    count = join.read
    found = accesses([*join.dtypes, *join.state], groups)
    counts: Any = tuple(map(len, groups))
    return JoinForm(join.program, found[:count], (), found[count:], counts)


def assembly(
    form: JoinForm,
    groups: list[tuple[JoinAxis, ...]],
    source: str,
    constants: dict[str, Any],
    warps: int,
) -> tuple[str, int]:
    """The PTX of a kernel, and the bytes of shared memory that it takes."""
    names = form.parameters()
    values = dict(zip(names[len(form.arrays()) :], form.integers(groups), strict=True))
    types: dict[str, str] = {name: "*fp32" for name, _ in form.arrays()}
    types |= {name: "constexpr" if value == 1 else "i32" for name, value in values.items()}
    types |= dict.fromkeys(constants, "constexpr")
    known = {**{name: value for name, value in values.items() if value == 1}, **constants}
    order = [*names, *constants]
    fixed = {(order.index(name),): value for name, value in known.items()}
    aligned = [k for k, name in enumerate(names) if values.get(name, 0) % 16 == 0]
    hints = {(k,): [["tt.divisibility", 16]] for k in aligned}
    made = ASTSource(compiled(source), types, fixed, hints)
    options = Tuning(1, 1, warps=warps).options
    found = triton.compile(made, target=HOPPER, options=options)
    return found.asm["ptx"], found.metadata.shared


def distances(pack: int) -> tuple[JoinForm, list[tuple[JoinAxis, ...]]]:
    """Distances of 4096 rows and columns, as copies in packs lie in memory."""
    op = EinSum((("i", "k"), ("k", "j")), ("i", "j"), call("abs", call("sub", x, y)), MAX)
    rows, cols = JoinAxis(4096, (pack, 0, 4096)), JoinAxis(4096, (0, pack, 1))
    groups = [(), (rows,), (cols,), (JoinAxis(4096, (4096 * pack, 4096 * pack, 0)),)]
    return form_of(FusedJoin(op, (F4, F4), F4), groups), groups


LARGE = {"ROWS": 8, "COLS": 16, "BAND": 8, "PADDED": True, "EXACT": True, "LONG": False}


def counted(
    form: JoinForm, groups: list[Any], blocks: tuple[Any, ...], unroll: int
) -> dict[str, int]:
    constants = {name: {**LARGE, "UNROLL": unroll}[name] for name in CONSTANTS}
    ptx, shared = assembly(form, groups, tile_source(form, *blocks), constants, warps=4)
    assert shared == 0
    patterns = {"loads": r"ld\.global", "of four": r"ld\.global\.v4", "points": r"max\.NaN\.f32"}
    return {name: len(re.findall(pattern, ptx)) for name, pattern in patterns.items()}


def test_each_value_that_is_loaded_serves_a_row_or_a_column_of_blocks() -> None:
    found = counted(*distances(1), (4, 2), unroll=2)
    steps = 2 + 1  # those written out, and the one for the rest
    assert found == {"loads": steps * (4 + 2), "of four": 0, "points": steps * 4 * 2}


def test_one_load_brings_a_pack_of_steps() -> None:
    found = counted(*distances(4), (4, 2, True), unroll=1)
    rest = 4 + 2
    assert found == {"loads": 4 + 2 + rest, "of four": 4 + 2, "points": (4 + 1) * 4 * 2}


def test_a_monoid_over_tuples_compiles() -> None:
    op = EinSum((("i", "k"), ("k", "j")), ("i", "j"), Tuple((x, y)), LOGSUMEXP)
    groups = [
        (),
        (JoinAxis(100, (70, 0, 50, 50)),),
        (JoinAxis(50, (0, 1, 1, 1)),),
        (JoinAxis(70, (1, 50, 0, 0)),),
    ]
    form = form_of(FusedJoin(op, (F4, F4), F4), groups)
    constants = {**LARGE, "UNROLL": 1, "PADDED": False, "EXACT": False, "LONG": True}
    source = tile_source(form, 1, 1)
    ordered = {name: constants[name] for name in CONSTANTS}
    ptx, _ = assembly(form, groups, source, ordered, warps=4)
    assert "st.global" in ptx
