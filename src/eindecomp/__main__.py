"""`python -m eindecomp`."""

from eindecomp_command import main

main()
