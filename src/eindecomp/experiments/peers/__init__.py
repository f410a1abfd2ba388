"""Other systems that compute the same, each in a file; those that are not installed say so."""
