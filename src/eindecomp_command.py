"""The program `eindecomp`: its modules are loaded first, and only then Ctrl-C is an exception.

An interrupt while modules are loaded would otherwise end in a traceback of theirs, or be lost in
one of them. This is no part of the package, whose own loading is part of what it waits for.
"""

import signal


def main() -> None:
    """Run the command line."""
    usual = signal.signal(signal.SIGINT, signal.SIG_DFL)
    from eindecomp.cli import main as run
    from eindecomp.cli.root import (
        app,
    )  # and not the commands, which `load_command` loads one at a time

    del app
    signal.signal(signal.SIGINT, usual)
    run()
