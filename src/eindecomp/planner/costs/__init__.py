"""What plans cost: the paper's bound, the bytes that move, seconds on a machine."""
