"""Kernels for torch's tensors on any device, made so that whole regions can be traced."""
