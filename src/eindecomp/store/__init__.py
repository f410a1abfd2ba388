"""Plan and machine files."""
