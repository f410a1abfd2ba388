"""EinSums that are no matrix products run by generated loops on the CPU, as those of NumPy's do."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch._subclasses import FakeTensorMode

import eindecomp as ed
from eindecomp.kernels.cpu.library import CpuLibrary
from eindecomp.kernels.torch.library import TorchLibrary

NORM = "Z[i,j] <- (X[i,j] - M[i]) * exp(S[i]) + G[j]"
SUM = "Z[i] <- sum (X[i,j] - M[i])**2 * lr / 300"
LARGEST = "Z[i] <- max X[i,j] * G[j]"


def vertex_of(statement: str, dtype: str):
    inputs = ", ".join(
        f"{name}[{own}] {dtype}" for name, own in (("M", "i"), ("S", "i"), ("G", "j"))
    )
    text = f"scalar lr float32\ninput X[i: 200, j: 300] {dtype}, {inputs}\n{statement}\noutput Z"
    graph = ed.parse(text)
    return graph, graph["Z"]


@pytest.mark.parametrize("statement", [NORM, SUM, LARGEST])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("lies", ["by rows", "by columns", "spread"])
def test_torch_and_numpy_compute_the_same_bits(statement, dtype, lies):
    graph, vertex = vertex_of(statement, dtype)
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(graph[n].shape).astype(graph[n].dtype) for n in vertex.inputs]
    if lies == "by columns":
        arrays = [np.asfortranarray(array) for array in arrays]
    if lies == "spread":
        arrays = [np.broadcast_to(array[:1], array.shape) for array in arrays]
    wanted = np.empty(vertex.shape, vertex.dtype)
    CpuLibrary().kernel(graph, vertex).whole(arrays, wanted, [0.5])
    library = TorchLibrary()
    operands = [library.from_numpy(array) for array in arrays]
    found = library.kernel(graph, vertex).result(operands, [torch.tensor(0.5)], vertex.shape)
    np.testing.assert_array_equal(library.to_numpy(found), wanted)


def test_what_is_recorded_for_a_compiler_is_left_to_torch():
    graph, vertex = vertex_of(NORM, "float32")
    with FakeTensorMode():
        operands = [torch.empty(graph[name].shape) for name in vertex.inputs]
        found = TorchLibrary().kernel(graph, vertex).result(operands, [0.5], vertex.shape)
    assert type(found) is not torch.Tensor
    assert tuple(found.shape) == vertex.shape
