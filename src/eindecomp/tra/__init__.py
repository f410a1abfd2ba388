"""The tensor-relational algebra: what the paper rewrites every EinSum to, over NumPy.

It is written for reading beside the paper and serves as the reference for whatever runs plans in
parallel; nothing here is fast.

| paper | here | meaning |
| --- | --- | --- |
| label list ℓ_X | `labels` | names of the dimensions of X, and of the parts of its keys |
| bound b | `shape` | the size of each dimension |
| partitioning vector d | `parts` | into how many pieces each dimension is cut |
| I(d) | `keys(parts)` | all keys: (0, …, 0) to d − 1 |
| tensor relation 𝓡 | `TensorRelation` | a function from keys to tiles (sub-tensors) |
| 𝓡ⁱ | `relation[key]` | the tile of a key |
| R ≡ 𝓡 | `from_tensor`, `to_tensor` | 𝓡 stores R, cut into tiles |
| b[ℓ₁; ℓ₂] | `project(b, ℓ₂, ℓ₁)` | the entries of b for the labels ℓ₁ |
| ℓ_X ⊙ ℓ_Y | `distinct(ℓ_X, ℓ_Y)` | both lists, every label once |
| ⋈ with K, ℓ_X, ℓ_Y | `join(kernel, labels, *relations)` | K of the tiles whose keys match |
| Σ with ⊕, ℓ_X, ℓ_agg | `aggregate(combine, labels, keep, relation)` | ⊕ of tiles, group by group |
| Π_d | `repartition(relation, parts)` | the same tensor, cut in another way |
| N(ℓ_X, ℓ_Y, d) | `len(join(…).tiles)` | how often the kernel is called |
| the rewriting under d | `rewrite_einsum` | repartitions, one join, one aggregation |

Where the paper slips, or says less, this is what is meant here:

- Tiles need not be equal: piece k of a dimension of size n in m pieces is `k*n//m : (k+1)*n//m`.
  Where m divides n, each has b/d elements; R ≡ 𝓡 then divides and takes mod by that b/d, for all
  indices in I(b), where the paper writes d. So do the indices of X and Y in its rewriting.
- The 4×4 example under d = [4, 2] shows the relation for [2, 4].
- Keys match if x.key[i] = y.key[j] where ℓ_X[i] = ℓ_Y[j]; the paper writes y.key[i].
- Its aggregation groups by the labels that are *not* in ℓ_agg, but then builds keys from those that
  are. The former is meant; `keep` lists them, in the order of the new keys, since ℓ_Z may come in
  any order.
- The kernel's result has the bound b/d[ℓ_Z; ℓ_XY], not b/d. Keys of a join thus have parts for
  labels that its tiles no longer have, until the aggregation takes them away.
- The paper leaves out broadcasts, repeated labels and joins of more than two; here they work.
"""

from eindecomp.errors import RelationError
from eindecomp.tra.tensor_relations import (
    TensorRelation,
    aggregate,
    distinct,
    from_tensor,
    join,
    keys,
    project,
    repartition,
    rewrite_einsum,
    to_tensor,
)

__all__ = [
    "RelationError", "TensorRelation", "aggregate", "distinct", "from_tensor", "join", "keys",
    "project", "repartition", "rewrite_einsum", "to_tensor",
]  # fmt: skip
