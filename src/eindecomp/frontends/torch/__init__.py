"""Modules of PyTorch in, placements of DTensor out."""
