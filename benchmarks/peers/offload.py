"""Systems that read LLaMA's weights from the host's memory while a GPU computes."""

from __future__ import annotations

import os
import socket
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NoReturn

from peers import frameworks
from peers.race import Absent
from peers.transformers import build, read_prompts

if TYPE_CHECKING:
    from eindecomp.experiments.measure import Way
    from eindecomp.models.llama.config import Config

_FLEXGEN = ("flexllmgen", "flexgen")


@contextmanager
def accelerate(config: Config, state: Mapping[str, Any], ids: Any) -> Generator[Way]:
    """`accelerate.cpu_offload`: each module's weights come before it is called, and go after."""
    library = frameworks.accelerate()
    other = library.cpu_offload(build(config, state), execution_device=ids.device)
    yield partial(read_prompts, other, ids)


@contextmanager
def deepspeed(config: Config, state: Mapping[str, Any], ids: Any) -> Generator[Way]:
    """DeepSpeed ZeRO-Inference: stage 3, with parameters in pinned memory of the host."""
    library = frameworks.deepspeed()
    settings = {
        "bf16": {"enabled": True},
        "zero_optimization": {
            "stage": 3,
            "offload_param": {"device": "cpu", "pin_memory": True},
        },
        "train_micro_batch_size_per_gpu": 1,
    }
    with _alone():
        library.init_distributed(dist_init_required=True)
        engine = library.initialize(model=build(config, state), config=settings)[0]
        engine.module.eval()
        try:
            yield partial(read_prompts, engine.module, ids)
        finally:
            engine.destroy()
            frameworks.torch().distributed.destroy_process_group()


def flexgen() -> NoReturn:
    """FlexGen has the models that it was written for, and LLaMA is none of them."""
    found = next((name for name in _FLEXGEN if find_spec(name) is not None), None)
    if found is None:
        raise Absent(f"{_FLEXGEN[0]} is not installed")
    raise Absent(f"{found} is installed, but it only runs OPT and Galactica")


@contextmanager
def _alone() -> Generator[None]:
    """A job of one rank, as far as the environment tells."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    own = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    before = {name: os.environ.get(name) for name in (*own, "MASTER_PORT")}
    os.environ.update(own, MASTER_PORT=port)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
