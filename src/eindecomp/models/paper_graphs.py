"""The paper's first two experiments: a chain of matrix products, and a large classifier.

Where there is no data for the classifier, there are made-up points that can be learned.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

import numpy as np

from eindecomp.errors import InputError, check_whole
from eindecomp.graph.grad import grad
from eindecomp.graph.graph import Graph
from eindecomp.graph.rewrites.rebuild import remove_dead
from eindecomp.graph.text.elaborate import parse
from eindecomp.lang.dtypes import Array
from eindecomp.lang.dtypes import dtype as dtype_of
from eindecomp.models.optimizers import Optimizer, training_step

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
    check_whole(batch=batch, features=features, hidden=hidden, classes=classes)
    name = dtype_of(dtype).name
    graph = parse(_NET.format(b=batch, f=features, h=hidden, c=classes, dtype=name), "ffnn")
    if optimizer is None:
        return remove_dead(grad(graph, "loss", wrt=PARAMETERS))
    return training_step(graph, "loss", PARAMETERS, optimizer)


_WORDS = 64
"""Features that belong to a class, if there are at least sixteen times as many in all."""
_MULTIPLIERS = np.array([0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9], np.uint64)


@dataclass(frozen=True, slots=True)
class Synthetic:
    """Batches `x` of made-up sparse points, and their classes `y`, in the shape of AmazonCat.

    A class has words of its own, which a hash of its number picks; about half of a point's features
    are such words and the rest is noise. Some classes are much rarer than others, as in real
    catalogues. A batch depends only on the seed and its number.

    Args:
        batch: The points of a batch, such as `512`.
        features: The size of a point, such as `1000`.
        classes: How many there are, such as `10`.
        nonzeros: About how many features of a point are not zero, such as `70`.
        seed: That of the random numbers, such as `0`.

    Examples:
        >>> batch = next(Synthetic(4, 10, 3).batches())
        >>> batch["x"].shape, batch["y"].shape
        ((4, 10), (4,))
    """

    batch: int
    features: int
    classes: int
    nonzeros: int = 70
    seed: int = 0

    def __post_init__(self) -> None:
        sizes = ("batch", "features", "classes", "nonzeros")
        check_whole(**{name: getattr(self, name) for name in sizes})
        check_whole(0, seed=self.seed)

    def batches(self, start: int = 0) -> Iterator[dict[str, Array]]:
        """The batches from one on, without end.

        Args:
            start: The number of the first, such as `0`.
        """
        check_whole(0, start=start)
        for number in count(start):
            features, values, classes = self._points(number)
            x = np.zeros((self.batch, self.features), np.float32)
            np.put_along_axis(x, features, values, axis=1)
            yield {"x": x, "y": classes}

    def _points(self, number: int) -> tuple[Array, Array, Array]:
        rng = np.random.default_rng([self.seed, number])
        # The square makes low class numbers frequent and high ones rare.
        classes = (self.classes * rng.random(self.batch) ** 2).astype(np.int32)
        shape = (self.batch, self.nonzeros)
        words = max(1, min(_WORDS, self.features // 16))
        word = rng.integers(0, words, shape).astype(np.uint64)
        hashed = classes[:, None].astype(np.uint64) * np.uint64(words) + word + np.uint64(1)
        hashed = hashed * _MULTIPLIERS[0]
        hashed = (hashed ^ (hashed >> np.uint64(29))) * _MULTIPLIERS[1]
        own = ((hashed >> np.uint64(16)) % np.uint64(self.features)).astype(np.int64)
        features = np.where(rng.random(shape) < 0.5, own, rng.integers(0, self.features, shape))
        return features, np.round(rng.random(shape) + 0.5, 4).astype(np.float32), classes
