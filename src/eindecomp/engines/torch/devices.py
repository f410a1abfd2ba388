"""Which of torch's devices an engine runs on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from eindecomp.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence


def devices_of(given: str | Sequence[str] | None) -> tuple[torch.device, ...]:
    """The devices that were asked for: by default all GPUs, or the CPU where there is none."""
    if given is None:
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        return tuple(torch.device("cuda", k) for k in range(count)) or (torch.device("cpu"),)
    names = given.split(",") if isinstance(given, str) else list(given)
    if not names:
        raise InputError("device is one of torch's devices or several, not none")
    return tuple(_device(name) for name in names)


def _device(name: str) -> torch.device:
    try:
        found = torch.device(name)
    except (RuntimeError, TypeError) as error:
        raise InputError(f"{name!r} is not a device of torch's: {error}") from None
    if found.type == "cpu":
        return torch.device("cpu")
    if found.type != "cuda":
        raise InputError(f"engine 'torch' runs on 'cuda' and 'cpu', not {name!r}")
    if not torch.cuda.is_available():
        raise InputError(f"{name!r} was asked for, and torch finds no GPU here")
    index = found.index if ":" in name else torch.cuda.current_device()
    if index >= torch.cuda.device_count():
        raise InputError(f"{name!r} was asked for; there are {torch.cuda.device_count()} GPUs")
    return torch.device("cuda", index)
