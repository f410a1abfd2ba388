"""`python -m eindecomp.cli`."""

from eindecomp.cli import main

main()
