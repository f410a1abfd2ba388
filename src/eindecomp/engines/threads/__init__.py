"""The default engine: the cores of one machine, tensors in memory that all of them share."""
