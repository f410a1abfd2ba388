"""Measures this machine once, for plans that minimize time: kernels, tasks and collectives."""

from eindecomp.experiments.calibrate.calibrate import ENGINES, QUIET, Profile, calibrate

__all__ = ["ENGINES", "QUIET", "Profile", "calibrate"]
