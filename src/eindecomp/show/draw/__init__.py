"""Pictures: plans and graphs, and the tiles of a tensor."""
