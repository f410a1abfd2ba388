"""A layer of LLaMA written in JAX: what its collectives move on 8 devices, and how fast it is on 1.

Bytes in the collectives that XLA compiles, all received: of engine `jax`, which must be the plan's
to the byte; of the function itself with the plan's shardings; sharded the Megatron way; and with
the plan's shardings of inputs only, where XLA decides on all else. Then seconds of the plan on one
device against the function as it is written, in turns: at most 1.05 is the bar.
"""

from __future__ import annotations

import argparse
from statistics import median
from time import perf_counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

import eindecomp as ed
from eindecomp.engines.jax.hlo import count_collectives

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--width", type=int, default=1024)
parser.add_argument("--tokens", type=int, default=1024)
parser.add_argument("--time-only", action="store_true", help="leave out 8 devices")
GIVEN = parser.parse_args()
BATCH, SEQ, WIDTH = 1, GIVEN.tokens, GIVEN.width
HEADS, HIDDEN = WIDTH // 64, WIDTH * 11 // 4
ROUNDS = 15

Params = dict[str, Any]


def rms_norm(x: Any, weight: Any) -> Any:
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-5) * weight


def rotary(x: Any) -> Any:
    half = x.shape[-1] // 2
    angles = jnp.arange(x.shape[1])[:, None] * 10000.0 ** (-jnp.arange(half) / half)
    cos, sin = jnp.cos(angles)[:, None], jnp.sin(angles)[:, None]
    left, right = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([left * cos - right * sin, right * cos + left * sin], axis=-1)


def layer(params: Params, x: Any) -> Any:
    """A layer as one writes it by hand."""
    b, s, a = x.shape
    normed = rms_norm(x, params["norm"])
    q, k, v = ((normed @ params[w]).reshape(b, s, HEADS, -1) for w in ("wq", "wk", "wv"))
    scores = jnp.einsum("bshd,bthd->bhst", rotary(q), rotary(k)) / (a // HEADS) ** 0.5
    scores = jnp.where(jnp.tril(jnp.ones((s, s), bool)), scores, -jnp.inf)
    mixed = jnp.einsum("bhst,bthd->bshd", jax.nn.softmax(scores, axis=-1), v)
    x = x + mixed.reshape(b, s, a) @ params["wo"]
    normed = rms_norm(x, params["ffn_norm"])
    return x + (jax.nn.silu(normed @ params["w1"]) * (normed @ params["w3"])) @ params["w2"]


SHAPES = {
    "norm": (WIDTH,), "ffn_norm": (WIDTH,),
    **dict.fromkeys(("wq", "wk", "wv", "wo"), (WIDTH, WIDTH)),
    "w1": (WIDTH, HIDDEN), "w3": (WIDTH, HIDDEN), "w2": (HIDDEN, WIDTH),
}  # fmt: skip


def arguments() -> tuple[Params, Any]:
    rng = np.random.default_rng(0)
    params = {
        name: jnp.asarray(rng.normal(size=shape) / shape[0] ** 0.5, "float32")
        for name, shape in SHAPES.items()
    }
    return params, jnp.asarray(rng.normal(size=(BATCH, SEQ, WIDTH)), "float32")


def received(fn: Any, args: Any, shardings: Any = None, out: Any = None) -> int:
    """The bytes that devices receive in a function that is compiled with shardings."""
    jitted = jax.jit(fn, in_shardings=shardings, out_shardings=out) if shardings else fn
    return sum(each.bytes for each in count_collectives(jitted.lower(*args).compile()))


def megatron() -> tuple[Any, Any]:
    """Projections cut by columns and then by rows; all else whole on every device."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:8]), ("model",))
    whole = NamedSharding(mesh, PartitionSpec())
    columns = NamedSharding(mesh, PartitionSpec(None, "model"))
    rows = NamedSharding(mesh, PartitionSpec("model", None))
    params = dict.fromkeys(SHAPES, whole)
    params |= dict.fromkeys(("wq", "wk", "wv", "w1", "w3"), columns)
    params |= dict.fromkeys(("wo", "w2"), rows)
    return (params, whole), whole


def moved() -> None:
    args = arguments()
    plan = ed.plan(ed.from_jax(layer, *args), devices=8)
    placed = plan.to_jax()
    given = placed.inputs
    named = ({name: given[f"params.{name}"] for name in SHAPES}, given["x"])
    rows = {
        "the plan": plan.cost,
        "engine jax": plan.verify_jax().counted,
        "the function, as planned": received(placed.jit(layer), args),
        "inputs named, the rest XLA's": received(layer, args, named),
        "Megatron": received(layer, args, *megatron()),
    }
    print(f"A layer of LLaMA, {WIDTH} wide, {SEQ} tokens, 8 devices; proved within {plan.gap:.0%}:")
    for name, count in rows.items():
        print(f"  {name:30} {count:>14,.0f} bytes  {count / plan.cost:6.2f} × the plan")


def timed() -> None:
    args = arguments()
    plan = ed.plan(ed.from_jax(layer, *args), devices=1)
    print(
        f"One {jax.devices()[0].device_kind}, {WIDTH} wide, {SEQ} tokens, {ROUNDS} runs in turns:"
    )
    for precision in ("default", "highest"):
        with jax.default_matmul_precision(precision):
            by_hand = jax.jit(layer).lower(*args).compile()
        executable = ed.compile(plan, engine="jax", precision=precision)
        placed = executable.place(ed.jax_inputs(layer, *args))
        spent = in_turns({
            "engine jax": lambda run=executable, given=placed: run(given),  # which waits
            "by hand": lambda run=by_hand: jax.block_until_ready(run(*args)),
        })  # fmt: skip
        for name, seconds in spent.items():
            best, middle = min(seconds), median(seconds)
            print(f"  {name:12} best {best * 1e3:8.2f} ms, median {middle * 1e3:8.2f} ms")
        ratio = min(spent["engine jax"]) / min(spent["by hand"])
        print(f"  precision {precision}: {ratio:.3f} × the function by hand; the bar is 1.05")


def in_turns(runs: dict[str, Any]) -> dict[str, list[float]]:
    spent: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(ROUNDS + 2):
        for name, run in runs.items():
            start = perf_counter()
            run()
            if turn >= 2:  # compiled and warm
                spent[name].append(perf_counter() - start)
    return spent


def main() -> None:
    if not GIVEN.time_only:
        jax.config.update("jax_num_cpu_devices", 8)
        moved()
    timed()


if __name__ == "__main__":
    main()
