"""What functions of a kernel are traced to: matrix products of what lies in memory, no copies."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch.nn", reason="torch is not installed")

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import eindecomp as ed
from eindecomp.kernels.torch.library import TorchLibrary
from eindecomp.lang.einsum import EinSum

VIEWS = {"view", "_unsafe_view", "permute", "t", "transpose", "unsqueeze", "expand", "squeeze"}
SIZES = {"b": 2, "s": 32, "t": 48, "h": 4, "g": 2, "k": 2, "c": 2, "e": 32, "d": 64, "a": 256,
         "f": 512, "o": 256}  # fmt: skip


def traced(
    text: str, of: str, sizes: dict[str, int] | None = None, device: str = "cuda", **orders: str
) -> tuple[list[str], Any]:
    """The operations that the vertex Z of a text is traced to, views left out, and its result.

    `orders` are the labels of inputs in the order in which they lie in memory.
    """
    known = SIZES | (sizes or {})
    graph = ed.parse(_inputs(text, known, of) + f"\nZ{text}\noutput Z")
    vertex = graph["Z"]
    assert isinstance(vertex.op, EinSum)
    kernel = TorchLibrary(device).kernel(graph, vertex)
    with FakeTensorMode():
        operands = [
            _lying(labels, orders.get(name, "".join(labels)), known, getattr(torch, of), device)
            for name, labels in zip(vertex.inputs, vertex.op.inputs, strict=True)
        ]
        made = make_fx(lambda *given: kernel.result(given, (), vertex.shape))(*operands)
        result = made(*operands)
    names = [node.target.__name__ for node in made.graph.nodes if node.op == "call_function"]
    return [name for name in names if name.partition(".")[0] not in VIEWS], result


def _inputs(text: str, sizes: dict[str, int], of: str) -> str:
    found: dict[str, str] = {}
    for part in text.partition("<-")[2].replace("*", " ").split():
        if "[" in part:
            name, _, labels = part.rstrip("]").partition("[")
            own = ", ".join(f"{label}: {sizes[label]}" for label in labels.split(","))
            found[name] = f"input {name}[{own}] {of}"
    return "\n".join(found.values())


def _lying(labels: Any, order: str, sizes: dict[str, int], of: torch.dtype, device: str) -> Any:
    made = torch.empty([sizes[k] for k in order], dtype=of, device=device)
    return made.permute([order.index(label) for label in labels])


LINEAR = "[b,s,f] <- sum XN[b,s,a] * WG[f,a]"
HEADS = "[b,h,s,d] <- sum XN[b,s,a] * WV[h,d,a]"
QUERIES = "[b,s,h,g,c,e] <- sum XN[b,s,a] * WQ[h,g,c,e,a]"
OUTPUT = "[b,s,o] <- sum O[b,s,h,g,d] * WO[o,h,g,d]"
SCORES = "[b,h,g,s,t] <- sum QR[b,h,g,s,k,e] * KR[b,h,t,k,e]"
VALUES = "[b,s,h,g,d] <- sum P[b,h,g,s,t] * V[b,h,t,d]"


@pytest.mark.parametrize("of", ["bfloat16", "float32"])
@pytest.mark.parametrize("text", [LINEAR, HEADS, QUERIES, OUTPUT])
def test_a_product_with_a_weight_is_one_call(text: str, of: str) -> None:
    operations, result = traced(text, of)
    assert operations == ["mm.default"]
    assert result.dtype == getattr(torch, of)


@pytest.mark.parametrize("of", ["bfloat16", "float32"])
@pytest.mark.parametrize("text", [SCORES, VALUES])
def test_attention_is_stacks_of_products(text: str, of: str) -> None:
    operations, _ = traced(text, of)
    assert operations == ["bmm.default"]


def test_one_sequence_needs_no_copy_however_its_heads_lie() -> None:
    one = {"b": 1, "g": 1}
    assert traced(SCORES, "bfloat16", one, QR="bshgke", KR="bthke")[0] == ["bmm.default"]
    assert traced(VALUES, "bfloat16", one, V="bthd")[0] == ["bmm.default"]


def test_a_weight_is_not_copied_if_it_lies_the_other_way_round() -> None:
    assert traced(LINEAR, "bfloat16", WG="af")[0] == ["mm.default"]
    assert traced(QUERIES, "bfloat16", WQ="ahgce")[0] == ["mm.default"]


def test_one_row_is_multiplied_without_a_copy() -> None:
    pytest.importorskip("triton")
    operations = traced(LINEAR, "bfloat16", {"b": 1, "s": 1})[0]
    assert operations == ["row_product.default"]
    many = {"t": 1024, "s": 1, "g": 1}
    assert traced(SCORES, "bfloat16", many)[0] == ["bmm.default"]


@pytest.mark.parametrize("pair", ["c,e", "e,c"])
def test_rotations_are_element_wise(pair: str) -> None:
    text = f"[b,h,g,s,k,e] <- sum Q[b,s,h,g,{pair}] * R[b,s,k,c,e] * 0.088"
    operations, result = traced(text, "bfloat16", {"e": 64})
    assert {name.partition(".")[0] for name in operations} == {"_to_copy", "mul", "sum"}
    assert result.dtype == torch.bfloat16


def test_a_sum_of_squares_is_element_wise() -> None:
    operations, _ = traced("[b,s] <- sum X[b,s,a] * X[b,s,a]", "float32")
    assert operations == ["mul.Tensor", "sum.dim_IntList"]


def test_wider_results_of_low_precision_are_asked_for() -> None:
    text = "[b,s,f] <- sum float32(XN[b,s,a]) * WG[f,a]"
    graph = ed.parse(
        "input XN[b: 2, s: 32, a: 64] bfloat16, WG[f: 128, a] bfloat16\n" + f"Z{text}\noutput Z"
    )
    kernel = TorchLibrary("cuda").kernel(graph, graph["Z"])
    with FakeTensorMode():
        operands = [
            torch.empty(shape, dtype=torch.bfloat16, device="cuda")
            for shape in ((2, 32, 64), (128, 64))
        ]
        made = make_fx(lambda *given: kernel.states(given, (), graph["Z"].shape))(*operands)
        [state] = made(*operands)
    assert state.dtype == torch.float32
    targets = [str(node.target) for node in made.graph.nodes]
    assert "aten.mm.dtype" in targets
    assert not any("copy" in target or "clone" in target for target in targets)


def test_gpus_multiply_no_matrices_of_integers() -> None:
    operations, result = traced(LINEAR, "int32")
    assert "mm.default" not in operations
    assert result.dtype == torch.int32
