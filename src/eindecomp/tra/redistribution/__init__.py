"""Moving one tensor from a layout to another: what must move, and the collectives that move it."""
