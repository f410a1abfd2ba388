"""What each objective charges: the paper's bound, bytes moved, seconds."""
