"""Viterbi's algorithm: the likeliest states behind each of a batch of observed sequences.

Going forward, ⊕ is max and ⊗ is +, in logarithms. Going back, no pointers are needed: the state
before is the one from which the next, which is known by then, is reached best.
"""

import eindecomp as ed


def graph(steps: int = 16, batch: int = 4, states: int = 1024) -> ed.Graph:
    """From log-probabilities of first states, transitions and observations to states q0, q1, …"""
    last = steps - 1
    lines = [
        f"input start[j: {states}], A[i: {states}, j], E[t: {steps}, b: {batch}, j]",
        "V0[b,j] <- start[j] + E[0, b, j]",
    ]
    for t in range(1, steps):
        lines += [
            f"M{t}[b,j] <- max V{t - 1}[b,i] + A[i,j]",
            f"V{t}[b,j] <- M{t}[b,j] + E[{t}, b, j]",
        ]
    lines += [f"score[b] <- max V{last}[b,j]", f"q{last}[b] <- argmax[j] V{last}[b,j]"]
    for t in reversed(range(last)):
        lines += [f"q{t}[b] <- argmax[i](V{t}[b,i] + A[i, q{t + 1}[b]])"]
    states_at = ", ".join(f"q{t}" for t in range(steps))
    return ed.parse("\n".join([*lines, f"output score, {states_at}"]))
