"""The text syntax: from `.ein` statements to vertices."""
