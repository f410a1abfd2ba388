"""What other systems take for the same work, each in a file; one that is not there is absent."""
