"""One tile of one vertex: the protocol of kernel libraries, and the library for NumPy's arrays."""
