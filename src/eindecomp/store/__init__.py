"""Files: saved plans, and writing any file completely or not at all."""
