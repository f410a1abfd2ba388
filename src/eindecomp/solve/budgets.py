"""What the solver may spend: work, table sizes, turns and shares of time.

Every number that tunes a method stands here, by subject, with its reason.
"""

from __future__ import annotations

# Elimination (`exact/eliminate.py`)

WORK = 1 << 33  # cells summed over all eliminations
CELL_SECONDS = 5e-9  # for each of them: what takes longer than there is time is not begun
QUICK_WORK = 1 << 31  # the same, if bounds and reductions can be tried instead
TABLE_CELLS = 1 << 25  # of one table: 256 MiB, and 128 MiB for its argmin
ARGMIN_BYTES = 1 << 30  # of all argmin tables, which back-tracking needs
JOINED_AT_ONCE = 1 << 22  # joined tables of more cells are minimised by compiled loops instead
COMPRESSED_RATIO = 4  # choices that are alike are looked for in joins of so many times the cells
SPARSE_RATIO = 4  # a table is sparse if less than one in so many costs is finite
COUNTED_CELLS = 1 << 20  # of a table whose finite costs are counted to see that
SEARCHED_CELLS = 1 << 17  # finite costs of a table over three variables or more that is searched

# Folding (`exact/fold.py`)

FEWEST_BLOCKS = 6  # with fewer, folding does not pay off
MOST_HUBS = 4  # variables that all blocks share
CUT_STATES = 2048  # joint choices at a cut, hubs included
POWER_CELLS = 1 << 32  # cells of a min-plus power

# Bounds by mini-buckets (`exact/bounding.py`)

BOUND_SHARE = 0.4  # of the time: after it, no further bound is tried before searching
BUCKET_CELLS = tuple(1 << k for k in (18, 21, 23, 25))  # of a joined table, attempt by attempt
BUCKETS_TOGETHER = 1 << 27  # cells of all mini-buckets of one variable
DECODED_BYTES = 1 << 30  # of tables kept for decoding a choice
LATE_SHARE = 0.8  # after this share of the time, only small tables are joined,
LATE_CELLS = 1 << 18  # of at most so many cells

# Reductions (`search/reduce.py`)

COMPARED_CELLS = 1 << 22  # variables with more to compare keep dominated choices
CONTRACTED_GROWTH = 1 << 21  # table entries that contraction may add
PRUNING_WORK = 100_000_000  # item entries that are looked at for redundant time steps

# Prices on time steps (`search/lagrangian.py`)

PRICE_PATIENCE = 25  # iterations without a clear gain after which steps shrink
SLOWEST_PACE = 1e-3  # of steps
FEWEST_ROUNDS = 10  # of raising prices for a first choice, even if time is up

# Search (`search`)

TURN_VARIABLES = 300_000  # visited by local search in one turn
TURN_REGIONS = 500  # perturbed in one turn, at most
TURN_CELLS = 4_000_000  # visited by the ascent in one turn,
TURN_ITERATIONS = (25, 100)  # in at least and at most so many iterations
FIRST_ITERATIONS = 150  # of the ascent before the first turn
FIRST_CHOICE_GRACE = 1.0  # seconds past the deadline that a first choice may take
MOVE_ATTEMPTS = 5  # to fit one move into the capacities, at rising prices
NODE_ITERATIONS = 12  # of the ascent in one node of branch and bound
BRANCH_CELLS = 1_000_000  # with more table cells, branch and bound is not tried
BRANCH_CHOICES = 1_000  # with fewer choices, it is tried at once
SHRINK = 0.9  # a smaller core may have at most this share of the choices
NEW_CORE_TURNS, BRANCH_TURNS = 2, 40  # on a new core; before branch and bound on a large one

# The least usage (`least_usage.py`)

USAGE_SHARE = 0.3  # of the time that is left: one limit that is tried
LEAST_USAGE = 1.0  # seconds, even if time is up: a choice without a limit
USAGE_PRECISION = 1 / 256  # relative to what fits: closer limits are not told apart

# Rounding

ROUNDING = 1e-9  # what sums of floats may lose, relative to their size
SECOND_COST_VALUES = 1 << 8  # with fewer distinct values, a second cost would say too little
