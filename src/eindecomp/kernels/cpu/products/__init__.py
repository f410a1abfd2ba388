"""Matrix products: all the ways to compute one, and the fastest of them here."""
