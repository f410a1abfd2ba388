"""The paper's own algorithms for its objective, as published."""
