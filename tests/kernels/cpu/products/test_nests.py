"""Every nest of a contraction computes the same, whatever is blocked or summed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_tiles import assert_close, layouts, reference, values_of

from eindecomp.kernels.cpu.einsum import einsum_kernel
from eindecomp.kernels.cpu.products import nests
from eindecomp.kernels.cpu.products.nests import (
    AFTER,
    BEFORE,
    INSIDE,
    BlockedNest,
    NestCall,
    PairStep,
    candidates,
    nest_of,
)
from eindecomp.kernels.tile_arrays import sizes_of
from eindecomp.lang.einsum import EinSum, product
from eindecomp.lang.monoid import SUM

Array = np.ndarray[Any, Any]


def contraction(spec: str) -> EinSum:
    inputs, output = spec.split("->")
    own = tuple(tuple(labels) for labels in inputs.split(","))
    return EinSum(own, tuple(output), product(len(own)), SUM)


def arrays_of(op: EinSum, sizes: dict[str, int], of: str, hows: list[int]) -> list[Array]:
    dtype = np.dtype(of)
    shapes = [tuple(sizes[label] for label in own) for own in (*op.inputs, op.output)]
    return [
        layouts(values_of(shape, dtype, seed), how)
        for seed, (shape, how) in enumerate(zip(shapes, hows, strict=True))
    ]


def check(
    op: EinSum, nest: BlockedNest, arrays: list[Array], sizes: dict[str, int], expected: Array
) -> None:
    *operands, out = arrays
    out = np.full_like(out, np.nan, subok=False)
    NestCall(op, nest, sizes, out.dtype, einsum_kernel).launch(operands, [out])
    scale = max(1.0, float(np.abs(expected).max(initial=0.0)))
    assert_close(out / scale, expected / scale, out.dtype)


CASES = {
    "ijk,ja,ka->ia": {"i": 37, "j": 19, "k": 23, "a": 24},
    "ijk,ia,ka->ja": {"i": 37, "j": 19, "k": 23, "a": 24},
    "ijk,ia,ja->ka": {"i": 37, "j": 19, "k": 23, "a": 9},
    "ijklm,ja,ka,la,ma->ia": dict.fromkeys("ijklm", 5) | {"a": 8},
    "ijkl,ib,jc,kd->bcdl": dict.fromkeys("ijkl", 9) | dict.fromkeys("bcd", 7),
    "abc,ia,jb,kc->ijk": dict.fromkeys("ijk", 17) | dict.fromkeys("abc", 5),
    "ia,ajb,bkc,cl->ijkl": dict.fromkeys("ijkl", 11) | dict.fromkeys("abc", 6),
    "ij,jk,kl,lm->im": {"i": 40, "j": 30, "k": 20, "l": 50, "m": 25},
    "ij,jk,ki->": dict.fromkeys("ijk", 21),
    "iij,jk,k->ik": dict.fromkeys("ijk", 15),
}


@pytest.mark.one_in(6)
@pytest.mark.parametrize("of", ["float32", "float64"])
@pytest.mark.parametrize("spec", CASES)
def test_all_nests_give_the_reference(spec: str, of: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nests, "_BUDGET", 2**10)
    op, sizes = contraction(spec), CASES[spec]
    arrays = arrays_of(op, sizes, of, [0] * (len(op.inputs) + 1))
    expected = np.einsum(spec, *(array.astype("float64") for array in arrays[:-1]), optimize=True)
    for nest in candidates(op, arrays[:-1], arrays[-1], sizes)[::3]:
        inside = dict.fromkeys(label for step in nest.steps[:-1] for label in step.labels)
        check(op, nest, arrays, sizes, expected)
        for label in ("", *inside):
            check(op, replace(nest, blocked=label), arrays, sizes, expected)


@pytest.mark.long
@settings(deadline=None)
@given(st.data())
def test_random_contractions_give_the_reference(data: st.DataObject) -> None:
    own = st.lists(st.sampled_from("abcde"), max_size=3).map(tuple)
    inputs = tuple(data.draw(st.lists(own, min_size=3, max_size=5)))
    known = sorted({"e", *(label for labels in inputs for label in labels)})
    output = tuple(data.draw(st.lists(st.sampled_from(known), unique=True, max_size=3)))
    op = EinSum(inputs, output, product(len(inputs)), SUM)
    sizes = {label: data.draw(st.sampled_from([1, 2, 3, 8, 11])) for label in known}
    hows = [data.draw(st.integers(0, 4)) for _ in inputs]
    arrays = arrays_of(op, sizes, data.draw(st.sampled_from(["float32", "float64"])), [*hows, 0])
    assert sizes_of([*inputs, output], arrays).keys() <= sizes.keys()
    nest = data.draw(st.sampled_from(candidates(op, arrays[:-1], arrays[-1], sizes)))
    inside = {label for step in nest.steps[:-1] for label in step.labels}
    blocked = data.draw(st.sampled_from(["", *sorted(inside)]))
    expected = reference(op, arrays[:-1], arrays[-1].dtype, sizes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nests, "_BUDGET", data.draw(st.integers(1, 500)))
        check(op, BlockedNest(nest.steps, blocked), arrays, sizes, expected)


MTTKRP = (("i", "j", "k"), ("j", "a"), ("k", "a"))
STEPS = (PairStep(0, 2, ("i", "j", "a")), PairStep(3, 1, ("i", "a")))


def test_temporaries_are_as_long_as_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nests, "_BUDGET", 2**14)
    sizes = {"i": 512, "j": 64, "k": 64, "a": 16}
    assert BlockedNest(STEPS).temporaries(MTTKRP, sizes, 4) == [[512, 64, 16]]
    assert BlockedNest(STEPS, "i").temporaries(MTTKRP, sizes, 4) == [[4, 64, 16]]


def test_steps_are_taken_when_their_label_is_at_hand() -> None:
    assert BlockedNest(STEPS, "i").times(MTTKRP) == [INSIDE, INSIDE]
    assert BlockedNest(STEPS, "j").times(MTTKRP) == [INSIDE, INSIDE]
    assert BlockedNest(STEPS).times(MTTKRP) == [BEFORE, BEFORE]
    chain = (("i", "j"), ("j", "k"), ("k", "l"))
    steps = (PairStep(0, 1, ("i", "k")), PairStep(3, 2, ("i", "l")))
    assert BlockedNest(steps, "j").times(chain) == [INSIDE, AFTER]
    assert BlockedNest(steps, "l").times(chain) == [BEFORE, INSIDE]


def test_nests_are_read_back_from_text() -> None:
    nest = BlockedNest(STEPS, "i")
    assert nest_of(nest.to_text()) == nest
    assert nest_of("loops") is None
    assert nest_of("[1, 2]") is None
