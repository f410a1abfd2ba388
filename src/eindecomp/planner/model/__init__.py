"""The choice problems that the solver is given: variables and tables of costs."""
