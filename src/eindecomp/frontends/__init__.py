"""Models of other frameworks in, plans as those frameworks understand them out."""
