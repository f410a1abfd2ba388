"""A program tile by tile, for devices of which several share a memory."""
