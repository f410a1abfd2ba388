"""Plans by hand: which axes cut what, which operands are read in parts, what is left pending.

`CASES` are plans that leave results pending, by name, for a mesh of two axes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import eindecomp as ed
from eindecomp.layout.cut import pending_span, span_of
from eindecomp.layout.view import view_of
from eindecomp.planner.space.choices import Decision, Wait


@dataclass(frozen=True)
class Own:
    """A vertex's decision: axes by label, and those that cut the result further, in either layout.

    `waits` are pairs of axes and operands, read in parts of `agg`; `pending` are axes along which
    the result stays in parts of `left`. Axes that are mentioned nowhere repeat the work.
    """

    cut: dict[str, tuple[int, ...]] | None = None
    waits: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = ()
    pending: tuple[int, ...] = ()
    home: dict[str, tuple[int, ...]] | None = None
    second: dict[str, tuple[int, ...]] | None = None
    agg: str = "sum"
    left: str = "sum"


def plan_by_hand(graph, mesh, *, inputs="free", reduce_dtype=None, **own):
    """A plan with these decisions; vertices without one are computed by all devices alike."""
    asked = {"rewrite": False, "inputs": inputs, "reduce_dtype": reduce_dtype}
    plan = ed.plan(graph, mesh=mesh, **asked)
    decisions = {name: _decided(plan, name, own.get(name, Own())) for name in plan.decisions}
    return replace(plan, decisions=decisions)


def _decided(plan, name, own):
    view = view_of(plan.graph, plan.graph[name])
    cut = own.cut or {}
    assignment = tuple(cut.get(label, ()) for label in view.labels)

    def lying(*further):
        return tuple(
            span_of(dim, sum((each.get(dim.label, ()) for each in (cut, *further)), ()))
            for dim in view.output
        )

    home, second = lying(own.home or {}), None
    if own.second is not None:
        second = lying(own.home or {}, own.second)
    if own.pending:
        home = (*home, pending_span(plan.mesh, own.pending, own.left))
    waits = tuple(Wait(axes, operands, own.agg) for axes, operands in own.waits)
    return Decision(assignment, ((),) * len(view.output), home, second, waits)


P = Own({"k": (0, 1)}, pending=(0, 1))
Q = Own({"l": (0, 1)}, pending=(0, 1))
BOTH = (((0, 1), (0, 1)),)
PRODUCTS = """
input A[i: {rows}, k: 9] {dtype}, B[k, j: 5] {dtype}, C[i, l: 7] {dtype}, D[l, j] {dtype}
P[i,j] <- sum A[i,k] * B[k,j]
Q[i,j] <- sum C[i,l] * D[l,j]
{rest}
output R
"""
ADDED = "Z[i,j] <- P[i,j] + Q[i,j]\nR[i,j] <- {last}"
SQUARED = ADDED.format(last="Z[i,j] * Z[i,j]")


def products(rest=SQUARED, rows=7, dtype="float32"):
    """Two products P and Q, and what is made of them."""
    return ed.parse(PRODUCTS.format(rest=rest, rows=rows, dtype=dtype))


def added(mesh, dtype="float32", rows=7):
    """Z = A·B + C·D, reduced once, then a function that is not linear."""
    z = Own(waits=BOTH, home={"i": (0, 1)})
    return plan_by_hand(products(rows=rows, dtype=dtype), mesh, P=P, Q=Q, Z=z, R=Own({"i": (0, 1)}))


def rounded(mesh):
    """P and Q wait, rounded to the type in which they travel; S is combined at once."""
    graph = products(
        "Z[i,j] <- P[i,j] + Q[i,j]\nS[j] <- sum C[i,l] * D[l,j]\nR[i,j] <- Z[i,j] * S[j]"
    )
    z = Own(waits=BOTH, home={"i": (0,)})
    s = Own({"l": (0,), "j": (1,)})
    types = {"activations": "bfloat16", "Q": "float16"}
    return plan_by_hand(graph, mesh, reduce_dtype=types, P=P, Q=Q, Z=z, S=s)


def residual(mesh, dtype="float32", inputs="free"):
    """A bias, a residual and a fill that are added by the first device alone."""
    graph = ed.parse(f"""
    input A[i: 6, k: 9] {dtype}, B[k, j: 5] {dtype}, v[j] {dtype}, X[i, j] {dtype}
    P[i,j] <- sum A[i,k] * B[k,j]
    W[i,j] <- exp(X[i,j])
    T[i,j] <- fill float32(i - j)
    Z[i,j] <- P[i,j] + v[j] - W[i,j] + T[i,j]
    R[i,j] <- Z[i,j] * Z[i,j]
    output R
    """)
    z = Own(waits=(((0, 1), (0, 1, 2, 3)),), home={"j": (1,)})
    own = {"P": P, "W": Own({"i": (1,)}), "Z": z, "R": Own({"i": (0,)})}
    return plan_by_hand(graph, mesh, inputs=inputs, **own)


def fewer_axes(mesh):
    """P in parts along one axis, Q along another: their sum along both."""
    p, q = Own({"k": (0,)}, pending=(0,)), Own({"l": (1,)}, pending=(1,))
    return plan_by_hand(products(), mesh, P=p, Q=q, Z=Own(waits=BOTH, home={"i": (1,)}))


def product_of_parts(mesh):
    """A product of operands in parts along different axes."""
    p, q = Own({"k": (0,)}, pending=(0,)), Own({"l": (1,)}, pending=(1,))
    r = Own(waits=(((0,), (0,)), ((1,), (1,))), home={"i": (0,), "j": (1,)})
    return plan_by_hand(products("R[i,j] <- P[i,j] * Q[i,j]"), mesh, P=p, Q=q, R=r)


def lora(mesh):
    """(A·B)·C, reduced once, where A·B is smaller than it."""
    graph = ed.parse("""
    input A[i: 7, k: 9], B[k, j: 5], C[j, m: 4], S[i, m]
    P[i,j] <- sum A[i,k] * B[k,j]
    L[i,m] <- sum P[i,j] * C[j,m]
    R[i,m] <- 2 * L[i,m] + S[i,m]
    output R
    """)
    p = Own({"k": (0,), "j": (1,)}, pending=(0,))
    product = Own({"j": (1,)}, waits=(((0,), (0,)),), pending=(0, 1))
    return plan_by_hand(graph, mesh, P=p, L=product, R=Own(waits=BOTH, home={"i": (0, 1)}))


def second_layout(mesh, further):
    """A pending home, and a reduced second layout for who reads all of it."""
    z = Own(waits=BOTH, home={"i": (0,), "j": (1,)})
    own = {"P": replace(P, second=further), "Q": Q, "Z": z, "R": Own({"i": (0,)})}
    return plan_by_hand(products(ADDED.format(last="Z[i,j] * P[i,j]")), mesh, **own)


def some_reduced(mesh, dtype="float32", home=None):
    """Products that are reduced along one axis and wait along the other."""
    some, cut = {"pending": (0,), "home": home}, {"i": (1,)} if home else {}
    p, q = Own({"k": (0, 1)}, **some), Own({"l": (1, 0)}, **some)
    z = Own(cut, waits=(((0,), (0, 1)),), home={"j": (0,)})
    return plan_by_hand(products(dtype=dtype), mesh, P=p, Q=q, Z=z)


def sum_some_reduced(mesh, dtype="float32", home=None):
    """The same of a sum that has waited."""
    z = Own(waits=BOTH, pending=(0,), home=home)
    r = Own({"i": (1,)} if home else {}, waits=(((0,), (0, 1)),), home={"j": (0,)})
    graph = products(ADDED.format(last="2 * Z[i,j] + Z[i,j]"), dtype=dtype)
    return plan_by_hand(graph, mesh, P=P, Q=Q, Z=z, R=replace(r, waits=(((0,), (0,)),)))


def chain(mesh, agg, join, left, reads, last="tanh(2 * N[i])"):
    """What becomes of a largest or smallest value, or of a product, in parts."""
    graph = ed.parse(f"""
    input X[i: 7, k: 9], v[i]
    M[i] <- {agg} X[i,k]
    N[i] <- {join}
    O[i] <- {last}
    R[i] <- O[i] * O[i]
    output R
    """)
    m = Own({"k": (0, 1)}, pending=(0, 1), left=agg)
    n = Own(waits=(((0, 1), reads),), pending=(0, 1), agg=agg, left=left)
    o = Own(waits=(((0, 1), (0,)),), agg=left, home={"i": (0,)})
    return plan_by_hand(graph, mesh, M=m, N=n, O=o)


def views(mesh, product, agg, late):
    """Slices, concatenations and reshapes of what waits."""
    graph = ed.parse(f"""
    input A[i: 6, k: 9], B[k, j: 12], X[i: 3, j: 12]
    P[i,j] <- {product}
    S[i,j] <- P[i in 1:6, j]
    C[i,j] <- concat[i](S[i,j], X[i,j])
    H[i,h,d] <- C[i, (h: 6, d)]
    T[h,i,d] <- -H[i,h,d]
    R[h,i,d] <- T[h,i,d] * T[h,i,d]
    output R
    """)
    left, home = {"pending": (0,), "left": agg}, {"home": {"i": (0,)}}

    def waiting(label, *operands, **more):
        return Own({label: (1,)}, waits=(((0,), operands),), agg=agg, **more)

    h, t = waiting("h", 0, **home), Own({"h": (1,)})
    if late:
        h, t = waiting("h", 0, **left), waiting("h", 0, **home)
    p = Own({"k": (0,), "j": (1,)}, **left)
    s, c = waiting("j", 0, **left), waiting("j", 0, 1, **left)
    return plan_by_hand(graph, mesh, P=p, S=s, C=c, H=h, T=t)


def scattered(mesh):
    """Gradients of an embedding that is used twice."""
    graph = ed.parse("""
    input D[b: 8, a: 5], E[c: 7, a], at[b] int32, of[c] int32
    G[v: 4 = at[b], a] <- sum D[b,a]
    H[v: 4 = of[c], a] <- sum E[c,a]
    Z[v,a] <- G[v,a] + H[v,a]
    R[v,a] <- Z[v,a] * Z[v,a]
    output R
    """)
    g, h = Own({"b": (0, 1)}, pending=(0, 1)), Own({"c": (1, 0)}, pending=(0, 1))
    return plan_by_hand(graph, mesh, G=g, H=h, Z=Own(waits=BOTH, home={"a": (0,)}))


def numbers(mesh):
    """Tensors of no dimensions."""
    graph = ed.parse("""
    input X[i: 7], Y[k: 5]
    P[] <- sum X[i]
    Q[] <- sum Y[k]
    Z[] <- P[] - Q[]
    output Z
    """)
    p, q = Own({"i": (0, 1)}, pending=(0, 1)), Own({"k": (1,)}, pending=(1,))
    return plan_by_hand(graph, mesh, P=p, Q=q, Z=Own(waits=BOTH))


def looked_up(mesh):
    """Rows of a table in parts."""
    graph = ed.parse("""
    input A[v: 4, k: 9], B[k, j: 5], at[b: 7] int32
    P[v,j] <- sum A[v,k] * B[k,j]
    G[b,j] <- P[at[b], j]
    R[b,j] <- G[b,j] * G[b,j]
    output R
    """)
    g = Own({"b": (1,)}, waits=(((0,), (0,)),), home={"j": (0,)})
    return plan_by_hand(graph, mesh, P=Own({"k": (0,)}, pending=(0,)), G=g)


def truth(mesh):
    """Whether any is true, in parts, and that none is."""
    graph = ed.parse("""
    input X[i: 7, k: 9] int32, Y[i] int32
    A[i] <- any X[i,k] > 0
    N[i] <- not A[i]
    R[i] <- N[i] and Y[i] > 0
    output R
    """)
    a = Own({"k": (0, 1)}, pending=(0, 1), left="any")
    n = Own(waits=(((0, 1), (0,)),), pending=(0, 1), agg="any", left="all")
    r = Own(waits=(((0, 1), (0,)),), agg="all", home={"i": (0,)})
    return plan_by_hand(graph, mesh, A=a, N=n, R=r)


def own_monoid(mesh):
    """Parts of a monoid of one's own."""
    graph = ed.parse("""
    monoid hypot(x; y) = sqrt(x**2 + y**2) identity 0
    input X[i: 7, k: 9]
    P[i] <- hypot X[i,k]
    S[i] <- P[i in 2:7]
    output S
    """)
    p = Own({"k": (0, 1)}, pending=(0, 1), left="hypot")
    return plan_by_hand(graph, mesh, P=p, S=Own(waits=(((0, 1), (0,)),), agg="hypot"))


CASES = {
    **{f"added {dtype}": partial(added, dtype=dtype) for dtype in (
        "float32", "float16", "bfloat16", "complex64", "int32")},
    "rounded to bfloat16": rounded,
    "added evenly": partial(added, rows=6),
    "residual": residual,
    "residual bfloat16": partial(residual, dtype="bfloat16"),
    "residual sharded": partial(residual, inputs="sharded"),
    "fewer axes": fewer_axes,
    "product of parts": product_of_parts,
    "lora": lora,
    "second replicated": partial(second_layout, further={}),
    "second cut": partial(second_layout, further={"i": (0, 1)}),
    "second cut along one axis": partial(second_layout, further={"j": (1,)}),
    "some reduced": some_reduced,
    "some reduced bfloat16": partial(some_reduced, dtype="bfloat16", home={"i": (1,)}),
    "sum some reduced": partial(sum_some_reduced, home={"i": (1,)}),
    "sum some reduced bfloat16": partial(sum_some_reduced, dtype="bfloat16"),
    "largest, subtracted": partial(
        chain, agg="max", join="v[i] - M[i]", left="min", reads=(1,)),
    "smallest, added": partial(chain, agg="min", join="M[i] + v[i]", left="min", reads=(0,)),
    "larger of two": partial(
        chain, agg="max", join="max(M[i], v[i])", left="max", reads=(0, 1)),
    "product, multiplied": partial(
        chain, agg="prod", join="M[i] * v[i]", left="prod", reads=(0, 1), last="N[i]"),
    "looked up": looked_up,
    "truth": truth,
    "views of a sum": partial(views, product="sum A[i,k] * B[k,j]", agg="sum", late=False),
    "views of a largest": partial(views, product="max A[i,k] + B[k,j]", agg="max", late=False),
    "later views of a sum": partial(views, product="sum A[i,k] * B[k,j]", agg="sum", late=True),
    "scattered rows": scattered,
    "numbers": numbers,
    "own monoid": own_monoid,
}  # fmt: skip
