"""The program `eindecomp`: its modules are loaded first, and only then Ctrl-C is an exception.

An interrupt while modules are loaded would otherwise end in a traceback of theirs, or be lost in
one of them. This is no part of the package, whose own loading is part of what it waits for.
"""

import signal


def main() -> None:
    """Run the command line."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # nobody ignores it
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # until `Command.invoke`
    from eindecomp.cli import main as run

    run()
