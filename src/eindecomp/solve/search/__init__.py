"""What elimination cannot finish: reduced to a core, then local search, then branch and bound."""
