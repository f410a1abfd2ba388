"""Runs plans on a Ray cluster, as plain tasks whose results are recomputed when they are lost."""
