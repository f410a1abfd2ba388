"""Mixtures of experts on many devices: slots of each device's own, or shared by all tokens."""

from functools import reduce

import eindecomp as ed

ROUTE = """
    L[g,n,e]    <- sum X[g,n,d] * G[d,e]
    P[g,n,e]    <- softmax[e] L[g,n,e]
    first[f: EXPERTS, e: EXPERTS] <- fill f < e
    rank[g,n,e] <- sum[f] P[g,n,f] > P[g,n,e] or (P[g,n,f] == P[g,n,e] and first[f,e])
    expert[g,n,k: CHOSEN] <- sum where(rank[g,n,e] == k, e, 0)
    gate[g,n,k: CHOSEN]   <- sum where(rank[g,n,e] == k, P[g,n,e], 0)
    place[g,n,k] <- sum[m,j] (j < k or (j == k and m < n)) and expert[g,m,j] == expert[g,n,k]
    kept[g,n,k] <- place[g,n,k] < CAPACITY
"""
"""The experts that a token's gates prefer, and its place among those that came to them before."""


def _route(experts: int, capacity: int, chosen: int) -> str:
    sizes = {"EXPERTS": experts, "CAPACITY": capacity, "CHOSEN": chosen}
    return reduce(lambda text, name: text.replace(name, str(sizes[name])), sizes, ROUTE)


def grouped(
    tokens: int, width: int, hidden: int, experts: int, capacity: int, groups: int, chosen: int = 2
) -> ed.Graph:
    """Each group of tokens has `capacity` slots of its own at every expert.

    If every device has a group, tokens find their slots where they are. What moves is known
    beforehand: all slots to their experts, and back.
    """
    slots = experts * capacity
    return ed.parse(f"""
    input X[g: {groups}, n: {tokens // groups}, d: {width}]
    input G[d, e: {experts}], W1[e, d, h: {hidden}], W2[e, h, d]
    {_route(experts, capacity, chosen)}
    slot[g,n,k] <- where(kept[g,n,k], {capacity} * expert[g,n,k] + place[g,n,k], {slots})
    T[g, s: {slots + 1} = slot[g,n,k], d] <- sum X[g,n,d]
    U[g,s,d]    <- T[g, s in 0:{slots}, d]
    I[g,e,c,d]  <- U[g, (e: {experts}, c), d]

    H[g,e,c,h]  <- sum I[g,e,c,d] * W1[e,d,h]
    R[g,e,c,h]  <- relu(H[g,e,c,h])
    O[g,e,c,d]  <- sum R[g,e,c,h] * W2[e,h,d]

    F[g,(e,c),d] <- O[g,e,c,d]
    at[g,n,k]   <- min(slot[g,n,k], {slots - 1})
    Z[g,n,k,d]  <- F[g, at[g,n,k], d]
    V[g,n,d]    <- sum where(kept[g,n,k], gate[g,n,k] * Z[g,n,k,d], 0)
    Y[g,n,d]    <- X[g,n,d] + V[g,n,d]

    output Y
    """)


def together(
    tokens: int, width: int, hidden: int, experts: int, capacity: int, chosen: int = 2
) -> ed.Graph:
    """All tokens share `capacity` slots at every expert, and a spare one for those dropped.

    Which tokens go where is known only at run time, and so is how many rows move from whom to whom.
    """
    slots = experts * (capacity + 1)
    return ed.parse(f"""
    input X[n: {tokens}, d: {width}], G[d, e: {experts}], W1[e, d, h: {hidden}], W2[e, h, d]
    {_route(experts, capacity, chosen).replace("g,", "")}
    slot[n,k] <- {capacity + 1} * expert[n,k] + min(place[n,k], {capacity})
    T[s: {slots} = slot[n,k], d] <- sum X[n,d]
    I[e,c,d]  <- T[(e: {experts}, c), d]

    H[e,c,h]  <- sum I[e,c,d] * W1[e,d,h]
    R[e,c,h]  <- relu(H[e,c,h])
    O[e,c,d]  <- sum R[e,c,h] * W2[e,h,d]

    F[(e,c),d] <- O[e,c,d]
    Z[n,k,d]  <- F[slot[n,k], d]
    V[n,d]    <- sum where(kept[n,k], gate[n,k] * Z[n,k,d], 0)
    Y[n,d]    <- X[n,d] + V[n,d]

    output Y
    """)
