"""The reference engine: every device has arrays of its own, and data is really moved."""
