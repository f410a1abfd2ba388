"""The Ising model in two dimensions: the logarithm of its partition function, by transfer matrices.

The lattice is a cylinder of `3 * block` spins around and `columns` along. The state has a weight
for every configuration of a column: three labels of `2**block` configurations each. Bonds to
the next column factorise over spins, so a step is three small matrix products instead of one by a
matrix of `8**block` rows; bonds within a column are a diagonal.
"""

import numpy as np
import numpy.typing as npt

import eindecomp as ed

CRITICAL = float(np.log(1 + 2**0.5) / 2)
"""The coupling (over the temperature) at which the infinite lattice orders itself."""


def graph(block: int = 7, columns: int = 8) -> ed.Graph:
    """Column after column, each scaled to a sum of 1 so that nothing overflows."""
    n = 2**block
    lines = [f"input D[a: {n}, b: {n}, c: {n}], T[a, x: {n}]", "V1[a,b,c] <- D[a,b,c]"]
    for t in range(1, columns):
        lines += [
            f"N{t}[]      <- sum V{t}[a,b,c]",
            f"A{t}[x,b,c] <- sum V{t}[a,b,c] * T[a,x]",
            f"B{t}[x,y,c] <- sum A{t}[x,b,c] * T[b,y]",
            f"C{t}[x,y,z] <- sum B{t}[x,y,c] * T[c,z]",
            f"V{t + 1}[a,b,c] <- C{t}[a,b,c] * D[a,b,c] / N{t}[]",
        ]
    logarithms = " + ".join(f"log(N{t}[])" for t in range(1, columns + 1))
    lines += [f"N{columns}[] <- sum V{columns}[a,b,c]", f"log_Z[] <- {logarithms}", "output log_Z"]
    return ed.parse("\n".join(lines))


def weights(block: int, coupling: float) -> dict[str, npt.NDArray[np.float32]]:
    """Boltzmann's weights of the bonds: within a column (D), and of a block to the next (T)."""
    spins = 1.0 - 2.0 * (np.arange(2**block)[:, None] >> np.arange(block) & 1)
    first, last = spins[:, 0], spins[:, -1]
    within = (spins[:, 1:] * spins[:, :-1]).sum(1)
    column = within[:, None, None] + within[:, None] + within
    column = column + last[:, None, None] * first[:, None] + last[:, None] * first
    column = column + first[:, None, None] * last
    return {
        "D": np.exp(coupling * column).astype(np.float32),
        "T": np.exp(coupling * spins @ spins.T).astype(np.float32),
    }
