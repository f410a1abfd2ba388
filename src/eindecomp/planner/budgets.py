"""What planning may spend: shares of time, sizes of lists and tables, and what is close enough.

Every number that tunes a search stands here, by subject, with its reason. Shares are of the time
that is left when a stage begins.
"""

from __future__ import annotations

# Graphs and vertices by size

SMALL_GRAPH = 200  # vertices up to which one elimination may choose all axes
LARGE_GRAPH = 1000  # vertices above which layers that chose alike are not searched apart once more
WHOLE_WAYS = 400  # assignments of a vertex up to which one elimination may choose all axes
JOINT_WAYS = 1700  # the same for stages that consider all axes with the time there is
NARROW_WAYS = 50  # the same up to which bounding all axes at once is quick
BLOCK_WAYS = 130  # assignments of a vertex that are considered together, a block of axes at a time
LISTED_WAYS = 5000  # assignments among which those with given pieces, or of a pin, are picked

# Lists and tables

LISTED_NUMBERS = 1 << 22  # numbers in a list of partition vectors
SOME_VECTORS = 1 << 14  # vectors among which any one that fits is looked for
SMALLEST_VECTORS = 1 << 12  # vectors among which a strategy of small tiles looks for the smallest
RELAXED_VECTORS = (1 << 15, 1 << 12, 1 << 9)  # of a relaxed vertex; the first given a second
FINE_VECTORS = 1 << 10  # vectors of a vertex up to which the relaxation tells outer axes apart
PIECES_AND_HOMES = 1 << 23  # pairs of a vector and a home of one relaxed vertex
ALL_CELLS = 1 << 26  # costs in all tables of a problem: half a gigabyte
TRIPLE_CELLS = 1 << 23  # costs in a table over three variables
RELAXED_CELLS = 1 << 20  # costs in such a table up to which the relaxed problem is eliminated
FOLDED_WORK = 1 << 34  # costs that are summed for one of several equal relaxed layers
PINNED_LAYOUTS = 2000  # layouts that one pin may leave open
LARGEST_COUNT = 2**61  # bytes that 64-bit sums can count, with room for a few terms

# Smaller numbers of devices (`fewer_devices.py`)

FEWER_VERTICES = 16  # vertices of a graph for which they are tried
FEWER_NUMBERS = 8  # numbers that are tried
FEWER_SECONDS = 0.1  # for each of them
FEWER_GAIN = 0.05  # what one must save to be told

# Time for the parts of a plan

RELAX_SHARES = 0.45, 0.8  # the relaxed problem, at most, and of what the first starts have left
LEAST_RELAX_SECONDS = 1.0  # at least that, or a quarter of the time limit
RELAX_LEVELS_SHARES = 0.6, 0.5  # the same with several kinds of links
RELAX_CELL_SECONDS = 3e-8  # for each cost that its tables have: with less time, it is given up
ALONE_SECONDS = 0.3  # every vertex alone, where there was no time for that
EXACT_SHARE = 0.6  # of the relaxed problem: elimination and split tables, before prices
LAYERS_AT_ENDS, FIRST_SWEEPS = 3, 4  # equal layers whose prices are found first; how often
FIRST_GAIN, LAST_GAIN = 1e-2, 1e-5  # of the bound: what a sweep of prices must add to go on
SEARCH_SHARE = 0.4  # the search, where strategies are searched afterwards: they often lead further
ENDING_SECONDS = 2e-4, 6e-4  # for each vertex: what the plan costs in bytes, and in seconds
AXES_SECONDS = 10.0  # axes for given pieces, which the paper's objective does not count
FIRST_PLAN_GRACE = 20.0  # seconds beyond the deadline for a first plan, or for strategies
LEAST_SEARCH = 1.0  # seconds that a search from nothing needs
LEAST_SOLVE = 0.1  # seconds that one problem within a memory limit has even if time is up

# Time for the stages of a search (`search/choose.py`)

LIGHTEST_SHARE = 0.5  # all axes at once in mesh order, by one elimination
FOLLOW_SHARE, COMBINED_PLANS = 0.5, 4  # plans combined with what neighbours suggest; how many
FAR_ABOVE = 0.05  # a plan so far above the bound is compared with one of axes chosen one by one
LAYERS_SHARE = 0.5  # plans in which equal layers choose alike
BOUND_SHARE, BOUND_LAYERS_SHARE = 0.6, 0.85  # raising the bound; where layers have led to a plan
FIRST_TABLES = 3  # sizes of tables with which all axes are bounded before blocks are tried
IMPROVE_SHARE, IMPROVE_ALONE_SHARE = 0.25, 0.7  # blocks again; where all axes are never considered
TABLES_SHARE, SPLIT_SHARE = 0.4, 0.8  # making the tables of all axes, and splitting them
WHOLE_SHARE = 0.7  # searching all axes at once
PIECES_SHARE, NESTING_SHARE = 0.15, 0.8  # axes for given pieces in mesh order, then in any order
ORDERED_AXES, NESTED_AXES = 3, 5  # axes that are nested in any order for given pieces; afterwards
BLOCK_SHARE, BLOCK_SECONDS = 0.05, 1.0  # searching one block that elimination cannot handle

# Time for named strategies (`minimize_movement.py`)

STARTS_SHARE, START_SHARE = 0.5, 0.9  # plans to start from; the pieces of one of them
FIRST_AXES_SECONDS, TIMES_WHOLE = 3.0, 3  # axes one at a time, in bytes at least; in seconds,
# so many times what they take where no result stays in parts
BEGINNING_SHARE, FEW_VECTORS = 0.3, 16  # what strategies begin with; vectors of a vertex for that
FIRST_STARTS, FIRST_STARTS_SHARE = 2, 0.55  # those found first of all, and their share
FIRST_COMBINED_SHARES = 0.6, 0.4  # improving axes, and the best of all, by what neighbours suggest
BOUND_FIRST_SHARE = 0.35  # raising the bound before plans of large training steps are improved
LIMITED_AXES_SHARE = 0.3  # a plan within a memory limit, one axis at a time, where none else fits
FAR_FROM_BOUND = 0.2  # what a plan may cost above it and still be improved before any others
STRATEGY_SHARE = 0.5  # improving one of them, of what is left
FIRST_FITTING_SHARE = 0.6  # a first plan within a memory limit: then the one that holds the least
FITTING_SHARE = 0.7  # improving without the memory limit before plans are made to fit
STRATEGY_SECONDS = 0.5  # what one strategy needs, in a graph that is not large

# Contraction orders (`contraction_order.py`)

MERGED_VERTICES = 64  # vertices of a graph in which products of products are considered as one,
# and in which the order that stores least is compared with the usual one before anything else
ORDERED_VERTICES = 500  # vertices of a graph that is planned in several orders
ORDERS = 3000  # orders of one contraction that are listed, and combinations that are all considered
FIRST_ORDER_SHARE = 0.8  # the first plan, if there are others
LOOK_SHARE = 0.05  # each bound that says which order is planned first
OTHER_ORDERS = (10.0, 2.0)  # seconds for other orders, or so many times the first plan's
OTHER_MERGED_ORDERS = (4.0, 0.5)  # the same where products that were written apart are reordered
ORDER_BOUND_SHARE = 0.5  # of a limit: the bound of one order
LEAST_BOUND_SHARE = 0.2  # of a limit, or as follows if that is less:
LEAST_BOUND_TIME, BOUND_TIME = 1.0, 4.0  # no bound is begun with less; the least limit of one

# Equal layers, and the price of memory

NEAR_STEPS, FAR_STEPS = 1, 4  # steps within which vertices must look the same to choose alike
MEMORY_PRICES = 12  # prices of a byte that are tried
MEMORY_GAIN = 1e-3  # of the bound: what a further price must be able to add

FIRST_KIND_SHARE = 0.8  # a plan that keeps everything, where another may compute layers again
FEW_PARTS_SHARE = 0.5  # one that computes some parts again, where others may do so with more
MORE_RECOMPUTED = (0.25, 0.5)  # of the parts that might be kept, as some is held only for a moment
LEAST_MEMORY_SECONDS = 2.0  # the plan that holds the least, where none fits: errors name it

# What is close enough

CLOSE = 0.025  # where bounds are seldom met, a plan this close to its bound ends the search
CLOSE_IN_MEMORY = 0.01  # the same within a memory limit
ROUNDING = 1e-8  # costs in seconds that differ by less are equal
SUM_ROUNDING = 1e-9  # what sums of floats may lose: bounds are lowered by it
EXACT_BITS = 44  # of the 53 of a float, for the largest cost: others are for sums of costs
