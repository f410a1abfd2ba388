"""Labels, scalar functions, monoids, EinSum and the text syntax."""
