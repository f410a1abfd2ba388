"""Plans as files, which are not trusted when they are read."""
