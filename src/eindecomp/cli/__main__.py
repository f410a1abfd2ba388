"""`python -m eindecomp.cli`."""

from eindecomp_command import main

main()
