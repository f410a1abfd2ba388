"""The paper's first two experiments: a chain of matrix products, and a large classifier."""

from __future__ import annotations

from eindecomp.errors import InputError
from eindecomp.graph.grad import grad
from eindecomp.graph.graph import Graph
from eindecomp.graph.rewrites.rebuild import remove_dead
from eindecomp.graph.text.elaborate import parse
from eindecomp.lang.dtypes import dtype as dtype_of
from eindecomp.models.optimizers import Optimizer, training_step
from eindecomp.models.sizes import check_whole

_CHAIN = """
input A[i: {i}, j: {j}], B[j, k: {k}], C[i, l: {l}], D[l, m: {m}], E[m, k]
AB[i,k]  <- sum A[i,j] * B[j,k]
DE[l,k]  <- sum D[l,m] * E[m,k]
CDE[i,k] <- sum C[i,l] * DE[l,k]
Z[i,k]   <- AB[i,k] + CDE[i,k]
output Z
"""


def chain(s: int, skewed: bool = False) -> Graph:
    """(A·B) + (C·(D·E)): all matrices s × s, or s × s/10, s/10 × s, s × s/10, s/10 × 10s, 10s × s.

    Args:
        s: The size of matrices, such as `1000`.
        skewed: Whether they are of the second kind, such as `True`.

    Examples:
        >>> chain(100, skewed=True)["D"].shape
        (10, 1000)
    """
    if s < (10 if skewed else 1):
        raise InputError(f"a {'skewed ' if skewed else ''}chain of size {s} has empty matrices")
    narrow, wide = (s // 10, 10 * s) if skewed else (s, s)
    return parse(_CHAIN.format(i=s, j=narrow, k=s, l=narrow, m=wide))


PARAMETERS = ("W1", "b1", "W2", "b2")

# log_sum_exp is one pass over the logits, and its gradient needs only its result; a weight of 1 for
# the maximum itself avoids ∞ − ∞. Comparing class indices with the targets takes no memory and
# moves nothing, however the classes are cut. An out-of-range class index makes the loss NaN, which
# stops training.
_NET = """
monoid log_sum_exp(m, s; n, t) = (
    max(m, n), s * where(m >= n, 1, exp(m - n)) + t * where(n >= m, 1, exp(n - m))
  ) identity (-inf, 0) finish m + log(s) grad (s * exp(m - result), exp(m - result))

input x[b: {b}, f: {f}] {dtype}, y[b] int32
input W1[f, h: {h}] {dtype}, b1[h] {dtype}, W2[h, c: {c}] {dtype}, b2[c] {dtype}
A[b,h]  <- sum x[b,f] * W1[f,h]
H[b,h]  <- relu(A[b,h] + b1[h])
Z[b,c]  <- sum H[b,h] * W2[h,c]
U[b,c]  <- Z[b,c] + b2[c]
N[b]    <- log_sum_exp (U[b,c], 1)
C[c: {c}] <- fill int32(c)
T[b]    <- sum where(C[c] == y[b], U[b,c], where(y[b] >= 0, where(y[b] < {c}, 0, nan), nan))
loss[]  <- sum (N[b] - T[b]) / size(b)
output loss
"""


def ffnn(
    batch: int,
    features: int,
    hidden: int,
    classes: int,
    optimizer: str | Optimizer | None = "sgd",
    dtype: object = "float32",
) -> Graph:
    """One step of training a classifier with a hidden layer, relu(x·W1 + b1)·W2 + b2.

    Inputs are `x`, the class indices `y`, the parameters and the optimiser's state; outputs are the
    mean cross-entropy `loss` and `new_W1`, … Labels: b the batch, f features, h hidden, c classes.

    Args:
        batch: The points of a batch, such as `512`.
        features: The size of a point, such as `1000`.
        hidden: The size of the hidden layer, such as `256`.
        classes: How many there are, such as `10`.
        optimizer: `"sgd"`, `"momentum"`, `"adam"`, `"adamw"`, or a function such as `partial(adam,
            eps=1e-6)`; with None the outputs are the gradients `grad_W1`, … instead.
        dtype: What it computes in, such as `"float32"`.

    Examples:
        >>> graph = ffnn(4, 5, 6, 7)
        >>> [vertex.name for vertex in graph.outputs]
        ['loss', 'new_W1', 'new_b1', 'new_W2', 'new_b2']
    """
    sizes = {"batch": batch, "features": features, "hidden": hidden, "classes": classes}
    check_whole(**sizes)
    name = dtype_of(dtype).name
    graph = parse(_NET.format(b=batch, f=features, h=hidden, c=classes, dtype=name), "ffnn")
    if optimizer is None:
        return remove_dead(grad(graph, "loss", wrt=PARAMETERS))
    return training_step(graph, "loss", PARAMETERS, optimizer)
