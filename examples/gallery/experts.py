"""A mixture of experts: every token is computed by the one expert that its gate prefers.

An expert takes the first `capacity` tokens that come to it, so that all tensors have sizes known
beforehand. Later ones are dropped: they share a spare last slot, and their result is 0.
"""

import eindecomp as ed


def graph(
    tokens: int = 2048, width: int = 256, hidden: int = 1024, experts: int = 8, capacity: int = 320
) -> ed.Graph:
    """Gate, scatter tokens to slots, compute expert by expert, gather the results."""
    slots = experts * capacity
    return ed.parse(f"""
    input X[n: {tokens}, d: {width}], G[d, e: {experts}], W1[e, d, h: {hidden}], W2[e, h, d]

    L[n,e]    <- sum X[n,d] * G[d,e]
    P[n,e]    <- softmax[e] L[n,e]
    expert[n] <- argmax[e] P[n,e]
    gate[n]   <- max P[n,e]

    place[n]  <- sum[m] m < n and expert[m] == expert[n]      # how many came before
    kept[n]   <- place[n] < {capacity}
    slot[n]   <- where(kept[n], {capacity} * expert[n] + place[n], {slots})

    T[s: {slots + 1} = slot[n], d] <- sum X[n,d]              # scatter: tokens to slots
    U[s,d]    <- T[s in 0:{slots}, d]
    I[e,c,d]  <- U[(e: {experts}, c), d]

    H[e,c,h]  <- sum I[e,c,d] * W1[e,d,h]
    R[e,c,h]  <- relu(H[e,c,h])
    O[e,c,d]  <- sum R[e,c,h] * W2[e,h,d]

    F[(e,c),d] <- O[e,c,d]
    at[n]     <- min(slot[n], {slots - 1})
    Y[n,d]    <- where(kept[n], gate[n] * F[at[n], d], 0)     # gather: and back

    output Y
    """)
