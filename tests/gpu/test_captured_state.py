"""State that a captured run leaves where the next one reads it: nobody sees it change."""

import numpy as np
import pytest
import torch

import eindecomp as ed
from eindecomp.errors import InputError

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")


LAYERS = "".join(
    f"Z{k}[i,b] <- sum H{k}[i,a] * W[a,b]\nH{k + 1}[i,b] <- tanh(Z{k}[i,b])\n" for k in range(12)
)
TEXT = f"""
scalar rate
input X[i: 2, a: 64], S[i, a], T[i, a], W[a: 64, b: 64], ids[i] int32, E[r: 5, a]
L[i,a] <- E[ids[i],a]
H0[i,a] <- X[i,a] + S[i,a] + L[i,a]
{LAYERS}new_S[i,a] <- T[i,a] + rate * H12[i,a]
new_T[i,a] <- S[i,a]
Y[i,a] <- S[i,a] + H12[i,a]
output new_S, new_T, Y
tie S <- new_S, T <- new_T
"""
GRAPH = ed.parse(TEXT)
COMPUTED = ed.parse(TEXT.replace("new_T[i,a] <- S[i,a]", "new_T[i,a] <- S[i,a] - T[i,a]"))
"""Of which no result may be an input's memory: the next run begins without looking at its state."""
TIE = {"S": "new_S", "T": "new_T"}


def drawn(rng, *shape):
    return rng.normal(0, 0.1, shape).astype(np.float32)


class Both:
    """The same steps on the GPU and by the reference."""

    def __init__(self, bind, graph, **options):
        self.graph = graph
        rng = self.rng = np.random.default_rng(0)
        self.weights = {"W": drawn(rng, 64, 64), "E": drawn(rng, 5, 64)}
        self.executable = ed.compile(ed.plan(graph, 1), "torch", device="cuda", **options)
        self.bound = self.executable.bind(self.weights) if bind else self.executable
        self.more = {} if bind else self.executable.place(self.weights)

    def begin(self):
        wanted = {name: drawn(self.rng, 2, 64) for name in TIE}
        return self.bound.place(wanted), wanted

    def step(self, state, wanted, donate=(), changed=None):
        given = {
            "X": drawn(self.rng, 2, 64), "rate": np.float32(self.rng.normal()),
            "ids": self.rng.integers(0, 5, 2).astype(np.int32),
        }  # fmt: skip
        device = {**given, **(changed(given) if changed else {})}
        found = self.bound({**self.more, **state, **device}, donate=donate)
        expected = ed.evaluate(self.graph, {**self.weights, **wanted, **given})
        agree({name: found.tensor(name) for name in expected}, expected)
        state = {old: found.tensor(new) for old, new in TIE.items()}
        return state, {old: expected[new] for old, new in TIE.items()}, found

    @property
    def capture(self):
        return self.bound._prepared.runner.capture


def agree(tensors, arrays):
    for name, array in arrays.items():
        np.testing.assert_allclose(tensors[name].numpy(), array, rtol=1e-3, atol=1e-3)


@pytest.fixture(
    params=[(True, GRAPH), (False, GRAPH), (True, COMPUTED)], ids=["bound", "given", "computed"]
)
def both(request):
    made = Both(*request.param)
    yield made
    made.executable.close()


def warmed(both):
    state, wanted = both.begin()
    for _ in range(5):
        state, wanted, _ = both.step(state, wanted, donate=[*TIE])
    assert both.capture is not None
    return state, wanted


def test_donated_state_stays_where_it_is_read(both):
    state, wanted = warmed(both)
    capture, places = both.capture, {n: t.array().data_ptr() for n, t in state.items()}
    for _ in range(5):
        old = state
        state, wanted, _ = both.step(state, wanted, donate=[*TIE])
        with pytest.raises(InputError, match="was donated or released"):
            old["S"].numpy()
    assert both.capture is capture
    assert both.bound._prepared.runner.goes_on(state) == (both.graph is COMPUTED)
    assert {n: t.array().data_ptr() for n, t in state.items()} == places
    agree(state, wanted)


def test_results_that_are_kept_stay_as_they_are(both):
    state, wanted = warmed(both)
    kept = [(state, wanted)]
    for donate in ([], [*TIE], [], ["S"], [*TIE], []):
        state, wanted, _ = both.step(state, wanted, donate)
        if donate:
            kept = kept[:-1] if donate == [*TIE] else kept
            kept[-1:] = [({"T": kept[-1][0]["T"]}, kept[-1][1])] if donate == ["S"] else kept[-1:]
        kept.append((state, wanted))
    for tensors, arrays in kept:
        agree(tensors, {name: arrays[name] for name in tensors})


def test_another_sequence_begins_while_the_first_is_kept(both):
    first, wanted = warmed(both)
    other, others = both.begin()
    for _ in range(3):
        other, others, _ = both.step(other, others, donate=[*TIE])
    agree(first, wanted)
    agree(other, others)
    both.step(first, wanted, donate=[*TIE])
    agree(other, others)


def test_one_that_is_donated_twice_is_not_all(both):
    state, wanted = warmed(both)
    kept = {"T": state["T"]}
    after, later, _ = both.step(state, wanted, donate=["S", "S"])
    agree(kept, {"T": wanted["T"]})
    both.step(after, later, donate=["T", "S", "S"])


def test_states_change_places(both):
    state, wanted = warmed(both)
    for _ in range(3):
        state, wanted = ({"S": x["T"], "T": x["S"]} for x in (state, wanted))
        state, wanted, _ = both.step(state, wanted, donate=[*TIE])


def test_one_tensor_is_two_inputs(both):
    state, wanted = warmed(both)
    both.step({"S": state["S"], "T": state["S"]}, {"S": wanted["S"], "T": wanted["S"]}, ["S"])


def test_small_arrays_become_tensors_and_arrays_again(both):
    state, wanted = warmed(both)

    def on_gpu(given):
        return {"X": torch.from_numpy(given["X"]).cuda(), "ids": torch.from_numpy(given["ids"])}

    for changed in (on_gpu, on_gpu, None, None, on_gpu, None):
        state, wanted, _ = both.step(state, wanted, [*TIE], changed)


def test_errors_leave_the_next_run_right(both):
    state, wanted = warmed(both)
    given = {"X": np.zeros((2, 64), np.float32), "rate": np.float32(1)}
    outside = {**both.more, **state, **given, "ids": np.array([0, 5], np.int32)}
    for donate in ([], [*TIE]):
        with pytest.raises(ed.EinDecompError, match="5"):
            both.bound(outside, donate=donate)
    state, wanted, _ = both.step(state, wanted, [*TIE])
    with pytest.raises(InputError):
        both.bound({**both.more, **state, "X": np.zeros((3, 64), np.float32)}, donate=[*TIE])
    old, (state, wanted, _) = state, both.step(state, wanted, [*TIE])
    with pytest.raises(InputError, match="was donated or released"):
        both.bound({**both.more, **old, **given, "ids": np.zeros(2, np.int32)}, donate=[*TIE])
    both.step(state, wanted, [*TIE])


def test_events_are_told_between_captured_runs(both):
    state, wanted = warmed(both)
    heard = []
    given = {
        "X": drawn(both.rng, 2, 64), "rate": np.float32(1), "ids": np.zeros(2, np.int32)
    }  # fmt: skip
    both.bound({**both.more, **state, **given}, on_event=heard.append)
    assert heard
    both.step(state, wanted, [*TIE])


def test_results_that_repeat_others_are_copied():
    text = LAYERS.replace("H0[", "X[").replace("\nH12[", "\nLast[") + (
        "M[i] <- sum Last[i,b]\nZ[i,k: 3] <- M[i]\noutput M, Z"
    )
    graph = ed.parse(f"input X[i: 2, a: 64], W[a: 64, b: 64]\n{text}")
    rng = np.random.default_rng(0)
    weights = {"W": drawn(rng, 64, 64)}
    with ed.compile(ed.plan(graph, 1), "torch", device="cuda") as executable:
        bound = executable.bind(weights)
        for _ in range(5):
            given = {"X": drawn(rng, 2, 64)}
            found = bound(given)
            agree({n: found.tensor(n) for n in "MZ"}, ed.evaluate(graph, {**weights, **given}))
