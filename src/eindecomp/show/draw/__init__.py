"""Pictures: plans and graphs, the tiles of a tensor, and the dataflow of a vertex."""
