"""The paper's experiments: run, recorded with the machine, shown and drawn."""

from eindecomp.experiments.paper import EXPERIMENTS
from eindecomp.experiments.record import Findings, Record

__all__ = ["EXPERIMENTS", "Findings", "Record"]
