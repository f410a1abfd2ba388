"""The paper's experiments, and one GPU: run, recorded with the machine, shown and drawn."""

from eindecomp.experiments.chain import chain
from eindecomp.experiments.ffnn import ffnn
from eindecomp.experiments.gpu import gpu
from eindecomp.experiments.llama import llama
from eindecomp.experiments.record import Findings, Record

EXPERIMENTS = {"chain": chain, "ffnn": ffnn, "llama": llama, "gpu": gpu}

__all__ = ["EXPERIMENTS", "Findings", "Record"]
