"""Ranks that share nothing: each runs its own row of the program and holds only its tiles."""
