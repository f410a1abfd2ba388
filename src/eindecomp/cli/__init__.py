"""The command line: `eindecomp plan | run | explain | compare | draw | report | …`.

Exit status 0 means success, 1 that the input was wrong (a message on standard error, no traceback),
2 that the command was used wrongly, 70 a bug of ours, 130 that it was interrupted before it had a
result, 141 that the reader of its output went away.
"""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """Run the command line."""
    from eindecomp.cli.root import app
    from eindecomp.cli.terminal import allow_any_terminal, leave_job

    allow_any_terminal()
    try:
        app(prog_name="eindecomp")
    except SystemExit as end:
        if isinstance(end.code, int) and end.code:
            leave_job(end.code)
        raise
