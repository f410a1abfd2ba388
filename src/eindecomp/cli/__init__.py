"""The command line: `eindecomp plan | run | explain | compare | draw | report | …`.

Exit status 0 means success, 1 that the input was wrong (a message on standard error, no traceback),
2 that the command was used wrongly, 70 a bug of ours, 130 that it was interrupted before it had a
result, 141 that the reader of its output went away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eindecomp.cli.root import app

__all__ = ["app", "main"]


def main() -> None:
    """Run the command line."""
    try:
        # Here, so that an interrupt while modules are loaded is no traceback.
        from eindecomp.cli.mistakes import leave_job
        from eindecomp.cli.root import app
        from eindecomp.cli.terminal import allow_any_terminal
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    allow_any_terminal()
    try:
        app(prog_name="eindecomp")
    except SystemExit as end:
        if isinstance(end.code, int) and end.code:
            leave_job(end.code)
        raise


def __getattr__(name: str) -> Any:
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from eindecomp.cli.root import app

    return app
