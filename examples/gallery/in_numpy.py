"""The ten problems in NumPy, each as somebody who knows it would write it."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import scipy.sparse

Array = np.ndarray[Any, Any]
Arrays = Mapping[str, Array]


def attention(X: Array, WQ: Array, WK: Array, WV: Array, WO: Array) -> dict[str, Array]:
    """All heads at once, as batched matrix products."""
    a, h, d = WQ.shape
    q, k, v = ((X @ w.reshape(a, h * d)).reshape(-1, h, d).swapaxes(0, 1) for w in (WQ, WK, WV))
    scores = q @ k.swapaxes(1, 2)
    scores *= np.float32(d**-0.5)
    scores[:, ~np.tri(len(X), dtype=bool)] = -np.inf
    scores -= scores.max(-1, keepdims=True)
    np.exp(scores, out=scores)
    mixed = scores @ v / scores.sum(-1, keepdims=True)
    return {"Y": mixed.swapaxes(0, 1).reshape(-1, h * d) @ WO.reshape(h * d, a)}


def kmeans(X: Array, C: Array) -> dict[str, Array]:
    """Distances by a matrix product; sums by a product with the points' centres, one-hot."""
    at = ((C**2).sum(1) - 2 * (X @ C.T)).argmin(1)
    chosen = np.zeros((len(C), len(X)), X.dtype)
    chosen[at, np.arange(len(X))] = 1
    counts = np.bincount(at, minlength=len(C))[:, None]
    sums = chosen @ X
    return {"at": at, "new_C": np.where(counts > 0, sums / np.maximum(counts, 1), C)}


def shortest_paths(D: Array) -> dict[str, Array]:
    """The algorithm of Floyd and Warshall, a row and a column at a time."""
    D = D.copy()
    for k in range(len(D)):
        np.minimum(D, D[:, k, None] + D[k], out=D)
    return {"D512": D}


def viterbi(start: Array, A: Array, E: Array) -> dict[str, Array]:
    """Forward step by step, and back."""
    scores = [start + E[0]]
    for observed in E[1:]:
        scores.append((scores[-1][:, :, None] + A).max(1) + observed)
    states = [scores[-1].argmax(1)]
    for score in scores[-2::-1]:
        states.append((score + A[:, states[-1]].T).argmax(1))
    return {"score": scores[-1].max(1)} | {f"q{t}": q for t, q in enumerate(reversed(states))}


def mttkrp(X: Array, A: Array, B: Array, C: Array) -> dict[str, Array]:
    """Matrix products with X as a matrix, then the small rest."""
    i, j, k = X.shape
    r = A.shape[1]
    right = (X.reshape(i * j, k) @ C).reshape(i, j, r)
    left = (A.T @ X.reshape(i, j * k)).reshape(r, j, k)
    return {
        "MA": np.einsum("ijr,jr->ir", right, B),
        "MB": np.einsum("ijr,ir->jr", right, A),
        "MC": np.einsum("rjk,jr->kr", left, B),
    }


def experts(X: Array, G: Array, W1: Array, W2: Array, capacity: int) -> dict[str, Array]:
    """Expert by expert, each with the tokens it takes."""
    logits = X @ G
    gates = np.exp(logits - logits.max(1, keepdims=True))
    gates /= gates.sum(1, keepdims=True)
    preferred = gates.argmax(1)
    result = np.zeros_like(X)
    for expert in range(G.shape[1]):
        tokens = np.flatnonzero(preferred == expert)[:capacity]
        hidden = np.maximum(X[tokens] @ W1[expert], 0)
        result[tokens] = gates[tokens, expert, None] * (hidden @ W2[expert])
    return {"Y": result}


def nbody(
    x: Array, y: Array, z: Array, u: Array, v: Array, w: Array, m: Array, dt: Any, soft: Any
) -> dict[str, Array]:
    """Block by block, so that no matrix of all distances is needed."""
    forces = np.empty((3, len(x)), x.dtype)
    for start in range(0, len(x), 256):
        rows = slice(start, start + 256)
        gaps = [a - a[rows, None] for a in (x, y, z)]
        squares = gaps[0] ** 2 + gaps[1] ** 2 + gaps[2] ** 2 + soft**2
        pulls = m / (squares * np.sqrt(squares))
        for force, gap in zip(forces, gaps, strict=True):
            force[rows] = np.einsum("ij,ij->i", pulls, gap)
    new = {f"new_{n}": a + dt * f for n, a, f in zip("uvw", (u, v, w), forces, strict=True)}
    moved = zip("xyz", (x, y, z), "uvw", strict=True)
    return new | {f"new_{n}": a + dt * new[f"new_{speed}"] for n, a, speed in moved}


def ising(D: Array, T: Array, columns: int) -> dict[str, Array]:
    """Column after column, three matrix products each."""
    n = len(T)
    state, total = D, D.sum()
    log_z = np.log(total)
    for _ in range(columns - 1):
        for _ in "abc":  # the first label is summed over and comes back as the last
            state = (state.reshape(n, n * n).T @ T).reshape(n, n, n)
        state = state * (D / total)
        total = state.sum()
        log_z += np.log(total)
    return {"log_Z": log_z}


def kalman(
    x: Array, P: Array, z: Array, F: Array, Q: Array, H: Array, R: Array
) -> dict[str, Array]:
    """All filters at once, by NumPy's stacked matrices, and the inverse by the formula."""
    predicted = x @ F.T
    spread = F @ P @ F.T + Q
    cross = H @ spread
    ((a, b), (c, d)) = (cross @ H.T + R).transpose(1, 2, 0)
    inverse = np.stack([d, -b, -c, a], -1).reshape(-1, 2, 2) / (a * d - b * c)[:, None, None]
    gain = cross.swapaxes(1, 2) @ inverse
    innovation = z - predicted @ H.T
    return {
        "new_x": predicted + (gain @ innovation[:, :, None])[:, :, 0],
        "new_P": spread - gain @ cross,
    }


def gnn(**given: Array) -> dict[str, Array]:
    """The adjacency as a sparse matrix of SciPy's, made from the list of edges."""
    nodes, scale = len(given["X"]), given["s"]
    ends = given["to"], given["from"]
    adjacency = scipy.sparse.csr_array((scale[ends[0]] * scale[ends[1]], ends), (nodes, nodes))
    hidden = np.maximum(adjacency @ (given["X"] @ given["W1"]), 0)
    return {"Y": adjacency @ (hidden @ given["W2"])}


IN_NUMPY: dict[str, Callable[..., dict[str, Array]]] = {
    f.__name__: f
    for f in (
        attention, kmeans, shortest_paths, viterbi, mttkrp, experts, nbody, ising, kalman, gnn
    )
}  # fmt: skip
