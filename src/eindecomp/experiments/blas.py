"""Which BLAS libraries are loaded, and what their kernels are for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from threadpoolctl import threadpool_info


@dataclass(frozen=True, slots=True)
class Blas:
    """A library that is loaded."""

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
