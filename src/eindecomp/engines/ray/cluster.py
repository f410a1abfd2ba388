"""The Ray cluster that an engine uses: started, joined, left; called; what its head node keeps.

Nothing else of the package talks to Ray's own processes.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
import warnings
import weakref
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from functools import cache
from time import monotonic
from types import ModuleType
from typing import Any
from uuid import uuid4

from eindecomp.errors import EinDecompError, InputError, RunError, needing_extras
from eindecomp.kernels.cores import cores

Ref = Any
"""What Ray gives for a result that is yet to come."""

_ANSWER = 10.0  # seconds
RETRIES = 20
"""How often a task is tried again when its worker dies: more often than bad luck alone explains."""
_SPACE = b"eindecomp"  # the namespace of what the head node keeps for us
_LOOPBACK_ONLY = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
_HINT = "; if it asks for a token, as it should, set RAY_AUTH_MODE=token"


@cache
def ray_module() -> ModuleType:
    """Ray itself, which takes a second to import."""
    with needing_extras():
        import ray
    return ray


class Cluster:
    """A connection to Ray; `close` undoes what making it has done, and nothing else."""

    def __init__(self, address: str | None, workers: int | None, memory: int | None) -> None:
        ray = ray_module()
        self.is_ours = not ray.is_initialized()
        if self.is_ours:
            with _quietly():
                _connect(ray, address, workers, memory)
        else:
            check_address(address)
            _check_workers(ray, workers)
        self._session = ray.get_runtime_context().get_job_id()

    @property
    def is_open(self) -> bool:
        """Whether it is connected still, and to the same cluster."""
        ray = ray_module()
        return ray.is_initialized() and ray.get_runtime_context().get_job_id() == self._session

    def nodes(self) -> dict[str, str]:
        """The nodes that are alive and compute, by name, in that order, and their addresses."""
        alive = (node for node in ray_module().nodes() if node["Alive"])
        computing = (node for node in alive if node["Resources"].get("CPU", 0) >= 1)
        nodes = {str(node["NodeID"]): str(node["NodeManagerAddress"]) for node in computing}
        if not nodes:
            raise InputError("this Ray has no node with a CPU: start one with --num-cpus")
        return dict(sorted(nodes.items()))

    def is_one_machine(self) -> bool:
        """Whether all nodes are on the machine of this process."""
        return {*self.nodes().values()} == {ray_module().util.get_node_ip_address()}

    def close(self) -> None:
        """Leave the cluster, and end it if it was started here."""
        if self.is_ours and self.is_open:
            ray_module().shutdown()


def _connect(ray: ModuleType, address: str | None, workers: int | None, memory: int | None) -> None:
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address is not None:
        if workers is not None or memory is not None:
            raise InputError("workers and memory are those of the cluster that address= names")
        try:
            host, _, port = address.rpartition(":")
            if host and port.isdigit() and "/" not in host:
                # Raises at once if nobody listens there: Ray itself goes on asking for minutes.
                socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWER).close()
            ray.init(address=address, **quiet)
        except (OSError, ValueError, RuntimeError) as error:
            hint = "" if "RAY_AUTH_MODE" in os.environ else _HINT
            message = f"address: no Ray at {address!r} can be joined: {error}{hint}"
            raise InputError(message) from None
        return
    with _on_loopback():
        ray.init(
            address="local",  # whatever else may run on this machine
            num_cpus=workers or cores(),
            object_store_memory=memory,  # None: a share of what is free
            include_dashboard=False,
            _system_config={"task_oom_retries": RETRIES},
            **quiet,
        )


def check_address(address: str | None) -> None:
    """Refuse another Ray than the one that this process uses already, if it uses any."""
    if address in (None, "auto") or "ray" not in sys.modules or not ray_module().is_initialized():
        return
    here = ray_module().get_runtime_context().gcs_address
    if address != here:
        raise InputError(
            f"address: this process uses the Ray at {here} already, and cannot join {address!r} too"
        )


def _check_workers(ray: ModuleType, workers: int | None) -> None:
    """Refuse another number of workers than the Ray that this process uses already has."""
    count = int(ray.cluster_resources().get("CPU", 0))
    if workers not in (None, count):
        raise InputError(
            f"workers: this process uses a Ray with {count} already; close its engine first to "
            f"have {workers}"
        )


@contextmanager
def _environment(values: Mapping[str, str]) -> Generator[None]:
    """Have these in the environment for a while."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _quietly() -> Generator[None]:
    """Without Ray's advice, and with nothing reported to its makers unless the user has said so."""
    said = {name: os.environ[name] for name in _QUIET if name in os.environ}
    with _environment(_QUIET | said), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def _on_loopback() -> Generator[None]:
    """Let a Ray of this machine alone listen where no other machine can call."""
    from ray._private import ray_constants as constants

    clusters = getattr(constants, "ENABLE_RAY_CLUSTER", True)
    constants.ENABLE_RAY_CLUSTER = False
    try:
        with _environment({_LOOPBACK_ONLY: "0"}):
            yield
    finally:
        constants.ENABLE_RAY_CLUSTER = clusters


# Calling functions there


class Submitting:
    """Calls functions as Ray tasks, each on the node of its device."""

    def __init__(self, nodes: Iterable[str]) -> None:
        self.nodes = [*nodes]

    def call(
        self,
        function: Callable[..., Any],
        device: int,
        *given: Any,
        results: int = 1,
        retries: int = RETRIES,
    ) -> list[Ref]:
        """References to the results of a call; lost ones are computed again, so many times."""
        node = self.nodes[device % len(self.nodes)] if len(self.nodes) > 1 else None
        made = _remote(function, results, node, retries).remote(*given)
        return made if results > 1 else [made]


@cache
def _remote(function: Callable[..., Any], results: int, node: str | None, retries: int) -> Any:
    ray = ray_module()
    options: dict[str, Any] = {
        "num_cpus": 1,
        "num_returns": results,
        "max_retries": retries,
        "retry_exceptions": False,  # a kernel that fails would fail again
    }
    if node is not None:
        on_node = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
        options["scheduling_strategy"] = on_node(node, soft=True)  # another, if it is gone
    return ray.remote(**options)(function)


def reason_of(error: Exception, where: str) -> Exception:
    """What to tell the user of an error of Ray's: what a kernel raised, or what was lost."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, EinDecompError):
        return cause
    lines = str(cause or error).strip().splitlines() or [""]
    kind = type(cause or error).__name__
    return RunError(f"{where}: {kind}: {lines[0]}")


# What the head node keeps


class StoredJob:
    """A job where every worker can read it, once; it is there for as long as somebody has this."""

    size = 0

    def __init__(self, data: bytes) -> None:
        self.name = f"job:{uuid4().hex}"
        _put(self.name, data)
        self._delete = weakref.finalize(self, _forget, self.name)


def _forget(name: str) -> None:
    if ray_module().is_initialized():
        _delete(name)


def read_job(name: str) -> bytes:
    """In a worker: what was stored for the workers of a job."""
    data = _get(name)
    if data is None:
        raise InputError(f"{name} is gone: nobody has its executable or a result of it any more")
    return data


def note_recovery(run: str, task: str) -> None:
    """In a worker: note that a task, by its number or in words, is done again, if it is."""
    from ray._private import worker

    core: Any = getattr(worker.global_worker, "core_worker")  # noqa: B009 - which has no type
    attempt: int = core.get_current_task_attempt_number()
    if attempt:
        _put(f"{run}:{task}:{attempt}", ray_module().util.get_node_ip_address().encode())


def call_off(run: str) -> None:
    """Let tasks of a run that have not begun yet do nothing.

    Ray could cancel them, but brings the driver down if one of them ends at that very moment.
    """
    _put(f"off {run}", b"yes")


def is_called_off(run: str) -> bool:
    """In a worker: whether a run was called off, which is asked for once in a while."""
    now = monotonic()
    when, is_off = _ASKED.get(run, (0.0, False))
    if not is_off and now - when > _SELDOM:
        is_off = _get(f"off {run}") is not None
        _ASKED.clear()  # a worker computes for one run at a time, mostly
        _ASKED[run] = now, is_off
    return is_off


_ASKED: dict[str, tuple[float, bool]] = {}
_SELDOM = 0.2  # seconds


def recoveries(run: str) -> list[tuple[str, int, str]]:
    """The tasks of a run that were done again: task, attempt, and the address of the node."""
    again: list[tuple[str, int, str]] = []
    keys: list[bytes] = _kv()._internal_kv_list(f"{run}:", namespace=_SPACE)
    for key in (name.decode() for name in keys):
        _, task, attempt = key.rsplit(":", 2)
        again.append((task, int(attempt), (_get(key) or b"").decode()))
    if again:
        _delete(f"{run}:", is_prefix=True)
    return sorted(again, key=lambda each: (len(each[0]), each))


@cache
def _kv() -> Any:
    """Ray's store of short values, which its head node keeps."""
    from ray.experimental import internal_kv

    return internal_kv


def _put(name: str, data: bytes) -> None:
    _kv()._internal_kv_put(name, data, namespace=_SPACE)


def _get(name: str) -> bytes | None:
    return _kv()._internal_kv_get(name, namespace=_SPACE)


def _delete(name: str, *, is_prefix: bool = False) -> None:
    _kv()._internal_kv_del(name, del_by_prefix=is_prefix, namespace=_SPACE)
