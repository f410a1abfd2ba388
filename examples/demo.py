"""What `make demo` shows: multi-head attention from text to a plan, its run and gradients."""

from pathlib import Path

import numpy as np

import eindecomp as ed

HERE = Path(__file__).parent


def attention(x: dict[str, np.ndarray]) -> np.ndarray:
    """The same multi-head attention in plain NumPy."""
    q = np.einsum("sa,ahd->hsd", x["Q"], x["WQ"])
    k = np.einsum("ta,ahd->htd", x["K"], x["WK"])
    v = np.einsum("ta,ahd->htd", x["V"], x["WV"])
    weights = np.exp(q @ k.swapaxes(1, 2) / np.sqrt(q.shape[-1]))
    weights /= weights.sum(-1, keepdims=True)
    return np.einsum("hsd,ahd->sa", weights @ v, x["WO"])


def main() -> None:
    """Parse, rewrite, plan, run, check and differentiate."""
    graph = ed.load(HERE / "multihead_attention.ein")
    print("# The graph, macros expanded:", graph, sep="\n")
    better = ed.rewrite(graph)
    print("\n# Rewritten for running:", better, sep="\n")

    plan = ed.plan(graph, devices=8)
    print("\n# Planned for 8 devices:", plan.explain(width=120), plan.compare(), sep="\n")

    rng = np.random.default_rng(0)
    inputs = {v.name: rng.standard_normal(v.shape) / 4 for v in graph.inputs}
    expected = attention(inputs)
    for name, g in (("as written", graph), ("rewritten", better)):
        error = np.abs(ed.evaluate(g, inputs)["Y"] - expected).max()
        print(f"\n{name}: largest difference from NumPy {error:.1e}")
        assert error < 1e-4

    result = ed.run(plan, inputs, "apart")
    error = np.abs(result["Y"] - expected).max()
    stats = result.stats
    print(f"run on 8 devices: {stats.tasks} tasks, {stats.bytes_moved:,} bytes moved as planned,")
    print(f"  {stats.seconds:.2f} s, largest difference from NumPy {error:.1e}")
    assert stats.bytes_moved == plan.cost
    assert error < 1e-4

    ed.extend(graph, "loss[] <- sum Y[s,a]**2\noutput loss")
    gradient = ed.grad(graph, "loss", wrt=["WQ", "WO"])
    print(f"\nloss and its gradients by WQ and WO: {len(gradient)} vertices")
    found = ed.evaluate(gradient, inputs)
    step = 1e-2
    moved = {name: inputs[name] - step * found[f"grad_{name}"] for name in ("WQ", "WO")}
    after = ed.evaluate(graph, inputs | moved)["loss"]
    print(f"loss {found['loss']:.3f}, after one gradient step {after:.3f}")
    assert after < found["loss"]


if __name__ == "__main__":
    main()
