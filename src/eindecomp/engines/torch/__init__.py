"""Engine `torch`: plans on GPUs, or with the same code on the CPU, by torch."""
