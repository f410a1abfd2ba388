"""Training a LLaMA on one GPU by `models.fit`, against the same step in plain PyTorch.

PyTorch compiles each layer, computes it again in the backward pass, and compiles the optimiser.
Weights are bfloat16; AdamW keeps float32 weights, means and squares beside them. Both take turns,
step by step, from the same state and on the same batch, so that losses must agree.

    python benchmarks/fit_llama.py                  # 0.5B parameters, on a GPU
    python benchmarks/fit_llama.py --tiny           # a smoke test, on any machine
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from train_llama import LOSS, adamw

import eindecomp as ed
from eindecomp.models.llama import Config, prefill_graph
from eindecomp.models.llama.config import rotations
from eindecomp.models.optimizers import training_step

HALF_BILLION = Config(
    vocabulary=32000, width=1024, layers=28, heads=16, kv_heads=8, head_size=64, hidden=4096,
    positions=8192, dtype="bfloat16",
)  # fmt: skip
TINY = Config(
    vocabulary=64, width=32, layers=2, heads=4, kv_heads=2, head_size=8, hidden=48, positions=64,
    dtype="bfloat16",
)  # fmt: skip
STATE = ("master", "mean", "square")
CLOSE = 0.02
"""How far losses of bfloat16 may be apart, relative to each other."""
Tensors = dict[str, torch.Tensor]


def training(config: Config, batch: int, tokens: int) -> ed.Graph:
    """One step: cross-entropy of every next token, backwards, and AdamW."""
    forward = prefill_graph(config, batch, tokens, every=True, keep=False)
    text = [line for line in str(forward).splitlines() if not line.startswith("output")]
    loss = LOSS.format(v=config.vocabulary, tokens=batch * tokens)
    graph = ed.parse("\n".join([*text, loss]))
    weights = [v.name for v in graph.inputs if v.dtype.name == config.dtype and v.name != "R"]
    return training_step(graph, "loss", weights, adamw)


def first_state(graph: ed.Graph) -> dict[str, Any]:
    """Weights, and the same in float32 with means and squares of 0."""
    state = ed.models.initial(graph)
    for name in [name for name in state if f"{name}_master" in state]:
        state[f"{name}_master"] = state[name].astype(np.float32)
        for what in ("mean", "square"):
            state[f"{name}_{what}"] = np.zeros(state[name].shape, np.float32)
    return state


@dataclass
class Peer:
    """The same step in PyTorch."""

    config: Config
    weights: Tensors
    moments: dict[str, list[torch.Tensor]]
    compiled: Callable[..., Any]

    @staticmethod
    def of(config: Config, state: Mapping[str, Any], device: str, compiles: bool) -> Peer:
        def tensor(array: Any) -> torch.Tensor:
            return torch.tensor(np.asarray(array, np.float32), device=device)

        names = [name for name in state if f"{name}_master" in state]
        weights = {n: tensor(state[n]).bfloat16().requires_grad_() for n in names}
        moments = {what: [tensor(state[f"{n}_{what}"]) for n in names] for what in STATE}
        compiled = torch.compile if compiles else (lambda function: function)
        return Peer(config, weights, moments, compiled)

    def __post_init__(self) -> None:
        self.layer, self.head = self.compiled(self._layer), self.compiled(self._head)
        self.update = self.compiled(_update)
        self.steps = 0

    def step(self, ids: torch.Tensor, then: torch.Tensor, turn: torch.Tensor, lr: float) -> float:
        """Train on a batch; its loss."""
        x = functional.embedding(ids, self.weights["E"])
        for layer in range(self.config.layers):
            names = ("N", "WQ", "WK", "WV", "WO", "NF", "WG", "WU", "WD")
            own = [self.weights[f"{name}{layer}"] for name in names]
            x = checkpoint(self.layer, x, turn, *own, use_reentrant=False)
        loss = self.head(x, self.weights["N"], self.weights["H"], then)
        loss.backward()
        self.steps += 1
        rate = torch.tensor(lr / (1 - 0.9**self.steps), device=x.device)
        root = torch.tensor((1 - 0.95**self.steps) ** 0.5, device=x.device)
        with torch.no_grad():
            # One by one: compiled together, they take minutes to compile, and no less to compute.
            for weight, *state in zip(self.weights.values(), *self.moments.values(), strict=True):
                self.update(weight, weight.grad, *state, rate, root, lr)
                weight.grad = None
        return float(loss.detach())

    def _norm(self, x: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.config.epsilon)
        return (wide * scale * gain).to(x.dtype)

    def _layer(self, x: torch.Tensor, turn: torch.Tensor, *own: torch.Tensor) -> torch.Tensor:
        n, wq, wk, wv, wo, nf, wg, wu, wd = own
        batch, tokens, width = x.shape
        normed = self._norm(x, n)

        def heads(weight: torch.Tensor) -> torch.Tensor:
            made = functional.linear(normed, weight.reshape(-1, width))
            return made.view(batch, tokens, -1, self.config.head_size).transpose(1, 2)

        q, k = (_rotated(heads(weight), turn) for weight in (wq, wk))
        many = self.config.groups > 1
        out = functional.scaled_dot_product_attention(
            q, k, heads(wv), is_causal=True, enable_gqa=many
        )
        x = x + functional.linear(
            out.transpose(1, 2).reshape(batch, tokens, -1), wo.reshape(width, -1)
        )
        normed = self._norm(x, nf)
        return x + functional.linear(
            functional.silu(functional.linear(normed, wg)) * functional.linear(normed, wu), wd
        )

    def _head(
        self, x: torch.Tensor, n: torch.Tensor, h: torch.Tensor, then: torch.Tensor
    ) -> torch.Tensor:
        logits = functional.linear(self._norm(x, n), h).float()
        return functional.cross_entropy(logits.flatten(0, 1), then.flatten().long())


def _rotated(x: torch.Tensor, turn: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, -1)
    (cos, minus), (sin, _) = ((row[0], row[1]) for row in turn)
    return torch.cat([first * cos + second * minus, first * sin + second * cos], -1)


def _update(weight, grad, master, mean, square, rate, root, lr):
    wide = grad.float()
    mean.add_(0.1 * (wide - mean))
    square.mul_(0.95).add_(0.05 * wide * wide)
    master.mul_(1 - lr * 0.1).sub_(rate * mean / (square.sqrt() / root + 1e-8))
    weight.copy_(master)


@dataclass
class Race:
    """Steps in turns: each batch that `fit` asks for first goes to the other one."""

    peer: Callable[[], float]
    batch: Mapping[str, object]
    steps: int
    on_gpu: bool
    seconds: dict[str, list[float]] = field(default_factory=lambda: {"ours": [], "torch": []})
    losses: list[float] = field(default_factory=list[float])
    peaks: dict[str, int] = field(default_factory=lambda: {"ours": 0, "torch": 0})
    held: int = 0
    """What the peer holds of the GPU between steps."""

    def batches(self) -> Iterator[Mapping[str, object]]:
        for _ in range(self.steps):
            started = self._start()
            ours = torch.cuda.memory_allocated() - self.held if self.on_gpu else 0
            self.losses.append(self.peer())
            self._stop("torch", started, ours)
            started = self._start()
            yield self.batch
            self._stop("ours", started, self.held)

    def _start(self) -> float:
        if self.on_gpu:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        return perf_counter()

    def _stop(self, name: str, started: float, others: int) -> None:
        if self.on_gpu:
            torch.cuda.synchronize()
            peak = torch.cuda.max_memory_allocated() - others
            self.peaks[name] = max(self.peaks[name], peak)
        self.seconds[name].append(perf_counter() - started)
        print(f"{name} step {len(self.seconds[name])}: {self.seconds[name][-1]:.3f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tiny", action="store_true", help="a smoke test on the CPU")
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--layers", type=int, help="fewer than the model has")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--warm", type=int, default=4, help="steps that do not count")
    parser.add_argument("--gpu-memory", default="60GB")
    parser.add_argument("--recompute", default="layers", choices=["layers", "none"])
    parser.add_argument("--lr", type=float, default=3e-4)
    given = parser.parse_args()
    config, batch, tokens = HALF_BILLION, given.batch, given.tokens
    on_gpu = torch.cuda.is_available() and not given.tiny
    if given.tiny:
        config, batch, tokens = TINY, 2, 16
    if given.layers:
        config = Config(
            **{n: getattr(config, n) for n in config.__slots__} | {"layers": given.layers}
        )
    device = "cuda" if on_gpu else "cpu"
    graph = training(config, batch, tokens)
    state, rng = first_state(graph), np.random.default_rng(0)
    words = rng.integers(0, config.vocabulary, (batch, tokens + 1)).astype(np.int32)
    turn = rotations(config, np.arange(tokens))
    data = {"ids": words[:, :-1].copy(), "next": words[:, 1:].copy()}
    data["R"] = np.broadcast_to(turn, (batch, *turn.shape)).copy()
    peer = Peer.of(config, state, device, compiles=on_gpu)
    inputs = [torch.from_numpy(data[name]).to(device) for name in ("ids", "next")]
    placed = torch.from_numpy(np.asarray(turn, np.float32)).to(device, torch.bfloat16)
    inputs.append(placed.permute(1, 2, 0, 3).contiguous())
    held = torch.cuda.memory_allocated() if on_gpu else 0
    race = Race(lambda: peer.step(*inputs, given.lr), data, given.steps, on_gpu, held=held)
    again = None if given.recompute == "none" else given.recompute
    started = perf_counter()
    plan = ed.plan(graph, 1, recompute=again)
    count = config.parameters / 1e9
    planned = perf_counter() - started
    print(f"{count:.3f}B parameters, {batch} × {tokens} tokens, planned in {planned:.1f} s")
    limit = given.gpu_memory if on_gpu else "1GB"
    options = {"device": device, "gpu_memory": limit}
    fitted = ed.models.fit(
        graph, race.batches(), state, lr=given.lr, plan=plan, engine="torch", options=options
    )
    own = {name: seconds[given.warm :] for name, seconds in race.seconds.items()}
    for name, seconds in own.items():
        low, middle, high = (1e3 * which(seconds) for which in (min, median, max))
        peak = race.peaks[name] / 1e9
        print(f"{name:6} {middle:9.1f} ms a step, {low:.1f} to {high:.1f}, peak {peak:.2f} GB")
    ratios = [ours / theirs for ours, theirs in zip(own["ours"], own["torch"], strict=True)]
    print(f"ours / torch {median(ratios):.3f}, {min(ratios):.3f} to {max(ratios):.3f}")
    apart = max(abs(a / b - 1) for a, b in zip(fitted.losses, race.losses, strict=True))
    ends = f"{fitted.losses[0]:.4f} to {fitted.losses[-1]:.4f}"
    print(f"losses from {ends}, {100 * apart:.3f} % apart at most")
    if apart > CLOSE:
        raise SystemExit("losses differ")


if __name__ == "__main__":
    main()
