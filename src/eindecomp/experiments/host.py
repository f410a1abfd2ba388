"""The machine that something was measured on: its processor, memory, BLAS and packages."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, cast

from threadpoolctl import threadpool_info

from eindecomp.kernels.cores import cores

_PACKAGES = (
    "eindecomp", "numpy", "scipy", "numba", "dask", "torch", "triton", "transformers",
    "accelerate", "deepspeed",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Blas:
    """A BLAS library that this process has loaded."""

    name: str
    version: str | None
    core: str | None
    """The processor that its kernels are for, as far as it says so."""
    path: str

    def __str__(self) -> str:
        return " ".join(word for word in (self.name, self.version, self.core) if word)


def loaded_blas() -> list[Blas]:
    """Every BLAS of this process."""
    return [
        Blas(info["internal_api"], info.get("version"), info.get("architecture"), info["filepath"])
        for info in cast("list[dict[str, Any]]", threadpool_info())
        if info["user_api"] == "blas"
    ]


@dataclass(frozen=True, slots=True)
class Host:
    """Where something was measured."""

    system: str
    cpu: str
    cores: int
    memory: int
    """In bytes."""
    blas: tuple[str, ...]
    """Every BLAS that is loaded: name, version, and the core that its kernels are for."""
    versions: dict[str, str]

    @staticmethod
    def here() -> Host:
        """This machine."""
        import scipy.linalg  # pyright: ignore[reportUnusedImport]  # noqa: F401 - loads its BLAS

        versions = {"python": platform.python_version()}
        for package in _PACKAGES:
            try:
                versions[package] = version(package)
            except PackageNotFoundError:
                continue
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        system = f"{platform.system()} {platform.machine()}"
        blas = tuple(dict.fromkeys(map(str, loaded_blas())))
        return Host(system, _cpu(), cores(), memory, blas, versions)


def _cpu() -> str:
    """The processor's name as the system gives it or, where it gives none, the compiler."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            name, _, model = line.partition(":")
            if name.strip() == "model name" and model.strip():
                return model.strip()
    except OSError:
        pass
    from llvmlite import binding

    return str(binding.get_host_cpu_name())
