"""An input like zarr's that does something when a tile of it is read."""

from __future__ import annotations


class Lazy:
    chunks = (2,)

    def __init__(self, array, on_read):
        self.array, self.shape, self.dtype, self.on_read = array, array.shape, array.dtype, on_read
        self.nbytes = array.nbytes

    def __getitem__(self, where):
        self.on_read(where)
        return self.array[where]
