"""The ten problems in PyTorch, each as somebody who knows it would write it."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def attention(X: Tensor, WQ: Tensor, WK: Tensor, WV: Tensor, WO: Tensor) -> dict[str, Tensor]:
    """By PyTorch's own fused attention."""
    a, h, d = WQ.shape
    q, k, v = ((X @ w.reshape(a, h * d)).view(-1, h, d).transpose(0, 1) for w in (WQ, WK, WV))
    mixed = torch.nn.functional.scaled_dot_product_attention(
        q[None], k[None], v[None], is_causal=True
    )
    return {"Y": mixed[0].transpose(0, 1).reshape(-1, h * d) @ WO.reshape(h * d, a)}


def kmeans(X: Tensor, C: Tensor) -> dict[str, Tensor]:
    """Distances by a matrix product, sums by `index_add_`."""
    at = torch.addmm((C**2).sum(1), X, C.T, alpha=-2).argmin(1)
    sums = torch.zeros_like(C).index_add_(0, at, X)
    counts = torch.bincount(at, minlength=len(C))[:, None]
    return {"at": at, "new_C": torch.where(counts > 0, sums / counts.clamp(min=1), C)}


def shortest_paths(D: Tensor) -> dict[str, Tensor]:
    """The algorithm of Floyd and Warshall, a row and a column at a time."""
    D = D.clone()
    for k in range(len(D)):
        torch.minimum(D, D[:, k, None] + D[k], out=D)
    return {"D512": D}


def viterbi(start: Tensor, A: Tensor, E: Tensor) -> dict[str, Tensor]:
    """Forward step by step, and back."""
    into = A.T.contiguous()  # a maximum over the last dimension is several times as fast
    scores = [start + E[0]]
    for observed in E[1:]:
        scores.append((scores[-1][:, None] + into).amax(-1) + observed)
    states = [scores[-1].argmax(1)]
    for score in scores[-2::-1]:
        states.append((score + into[states[-1]]).argmax(1))
    return {"score": scores[-1].amax(1)} | {f"q{t}": q for t, q in enumerate(reversed(states))}


def mttkrp(X: Tensor, A: Tensor, B: Tensor, C: Tensor) -> dict[str, Tensor]:
    """Matrix products with X as a matrix, then the small rest."""
    i, j, k = X.shape
    r = A.shape[1]
    right = (X.view(i * j, k) @ C).view(i, j, r)
    left = (A.T @ X.view(i, j * k)).view(r, j, k)
    return {
        "MA": (right * B).sum(1),
        "MB": (right * A[:, None]).sum(0),
        "MC": (left * B.T[:, :, None]).sum(1).T,
    }


def experts(X: Tensor, G: Tensor, W1: Tensor, W2: Tensor, capacity: int) -> dict[str, Tensor]:
    """Expert by expert, each with the tokens it takes."""
    gates, preferred = torch.softmax(X @ G, 1).max(1)
    result = torch.zeros_like(X)
    for expert in range(G.shape[1]):
        tokens = torch.nonzero(preferred == expert)[:capacity, 0]
        hidden = torch.relu(X[tokens] @ W1[expert])
        result[tokens] = gates[tokens, None] * (hidden @ W2[expert])
    return {"Y": result}


def nbody(
    x: Tensor, y: Tensor, z: Tensor, u: Tensor, v: Tensor, w: Tensor, m: Tensor, dt: Any, soft: Any
) -> dict[str, Tensor]:
    """Block by block, so that no matrix of all distances is needed."""
    forces = torch.empty((3, len(x)))
    for start in range(0, len(x), 256):
        rows = slice(start, start + 256)
        gaps = [a - a[rows, None] for a in (x, y, z)]
        squares = gaps[0].square() + gaps[1].square() + gaps[2].square() + soft**2
        pulls = squares.rsqrt().pow(3) * m
        for force, gap in zip(forces, gaps, strict=True):
            force[rows] = (pulls * gap).sum(1)
    new = {f"new_{n}": a + dt * f for n, a, f in zip("uvw", (u, v, w), forces, strict=True)}
    moved = zip("xyz", (x, y, z), "uvw", strict=True)
    return new | {f"new_{n}": a + dt * new[f"new_{speed}"] for n, a, speed in moved}


def ising(D: Tensor, T: Tensor, columns: int) -> dict[str, Tensor]:
    """Column after column, three matrix products each."""
    n = len(T)
    state, total = D, D.sum()
    log_z = total.log()
    for _ in range(columns - 1):
        for _ in "abc":  # the first label is summed over and comes back as the last
            state = (state.view(n, n * n).T @ T).view(n, n, n)
        state = state * (D / total)
        total = state.sum()
        log_z = log_z + total.log()
    return {"log_Z": log_z}


def kalman(
    x: Tensor, P: Tensor, z: Tensor, F: Tensor, Q: Tensor, H: Tensor, R: Tensor
) -> dict[str, Tensor]:
    """All filters at once, by batched matrices, and the inverse by the formula."""
    predicted = x @ F.T
    spread = F @ P @ F.T + Q
    cross = H @ spread
    ((a, b), (c, d)) = (cross @ H.T + R).permute(1, 2, 0)
    inverse = torch.stack([d, -b, -c, a], -1).view(-1, 2, 2) / (a * d - b * c)[:, None, None]
    gain = cross.mT @ inverse
    innovation = z - predicted @ H.T
    return {
        "new_x": predicted + (gain @ innovation[:, :, None])[:, :, 0],
        "new_P": spread - gain @ cross,
    }


def gnn(**given: Tensor) -> dict[str, Tensor]:
    """Messages by an index, added up by `index_add_`."""
    scale = given["s"][:, None]

    def spread(A: Tensor) -> Tensor:
        messages = (scale * A).index_select(0, given["from"])
        return scale * torch.zeros_like(A).index_add_(0, given["to"], messages)

    hidden = torch.relu(spread(given["X"] @ given["W1"]))
    return {"Y": spread(hidden @ given["W2"])}


IN_TORCH: dict[str, Callable[..., dict[str, Tensor]]] = {
    f.__name__: f
    for f in (
        attention, kmeans, shortest_paths, viterbi, mttkrp, experts, nbody, ising, kalman, gnn
    )
}  # fmt: skip
