"""The paper's experiments: run, recorded with the machine, shown and drawn."""

from eindecomp.experiments.chain import chain
from eindecomp.experiments.ffnn import ffnn
from eindecomp.experiments.llama import llama
from eindecomp.experiments.record import Findings, Record

EXPERIMENTS = {"chain": chain, "ffnn": ffnn, "llama": llama}

__all__ = ["EXPERIMENTS", "Findings", "Record"]
