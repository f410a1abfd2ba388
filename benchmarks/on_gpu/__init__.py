"""The tables of `benchmarks/gpu.py`: ours on one GPU against other systems and what it allows."""
