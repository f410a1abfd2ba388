"""Megatron-style generation: every rank has its heads and its part of each layer's weights.

mpirun -n 4 python examples/megatron_generation.py
"""

import argparse

from eindecomp.engines.engine import find_engine
from eindecomp.models.llama import Config, Llama

TINY = Config(
    vocabulary=64, width=32, layers=2, heads=4, kv_heads=4, head_size=8, hidden=48, positions=64
)
PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]


def main() -> None:
    """Continue a prompt with a tiny random model."""
    take = argparse.ArgumentParser()
    take.add_argument("--tokens", type=int, default=12)
    take.add_argument("--engine", default="spmd")
    given = take.parse_args()

    engine = find_engine(given.engine)
    devices = getattr(engine, "device_count", 4)
    with Llama.random(TINY, devices, "megatron", engine=engine) as model:
        tokens = [piece.token for piece in model.generate(PROMPT, given.tokens)]
        moved = model.counts.bytes_moved
    if not getattr(engine, "rank", 0):
        print(f"tokens: {tokens}")
        print(f"{moved} bytes moved between {devices} devices")


if __name__ == "__main__":
    main()
