"""Errors of the text syntax: place, message, and nothing that hangs or crashes."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

import eindecomp as ed
from eindecomp.lang.text.resolve import MAX_TEXT

HEAD = "input X[i: 3, j: 4], Y[j: 4, k: 5]\nscalar lr\n"
ERRORS = [
    # (text, line, column, message)
    ("Z[i,k] <- sum X[i,j] * W[j,k]", 3, 24, "unknown tensor 'W'; known: X, Y"),
    ("Z[i,k] <- sum X[i] * Y[j,k]", 3, 15, r"X has 2 dimensions \(shape \(3, 4\)\), not 1"),
    ("Z[i,k] <- sum X[j,i] * Y[j,k]", 3, 24, r"label 'j' has size 3 in X\[j,i\] but 4 in Y\[j,k\]"),
    ("Z[i] <- X[i,j]", 3, 9, r"label 'j' is not in Z\[i\]: say how to aggregate it"),
    ("Z[i,q] <- X[i,i2]", 3, 11, "say how to aggregate"),
    ("Z[i,q] <- sum X[i,j]", 3, 5, "label 'q' has no size"),
    ("Z[i,k] <- sum X[i,j] * Y[j,q]", 3, 24, r"'q' is not declared.*write Y\[j,k\], or 'k: SIZE'"),
    ("Z[i: 4] <- sum X[i,j]", 3, 3, "label 'i' of Z has size 3, not 4"),
    ("Z[i: 4,j] <- X[i, j in 0:2]", 3, 3, "label 'i' of Z has size 3, not 4"),
    ("Z[i, j: 4] <- concat[j](X[i,j], X[i,j])", 3, 6, "label 'j' of Z has size 8, not 4"),
    ("Z[i: 4,j] <- softmax[j] X[i,j]", 3, 3, "label 'i' of Z has size 3, not 4"),
    ("Z[i,j] <- X[i: 4,j] + 1", 3, 13, "label 'i' of X has size 3, not 4"),
    ("Z[i,j] <- X[i, j in 0:2] with Y[k,l]", 3, 31, "'with' is only allowed with a join"),
    ("Z[i,j] <- (X[i, j in 0:2], X[i,j])", 3, 28, "several values need an aggregation"),
    ("Z[i,j] <- concat[j](X[i,j], q = 3)", 3, 11, "concat has no options"),
    ("Z[i,i] <- X[i,j]", 3, 5, "label 'i' appears twice in Z"),
    ("tie X <- Y", 3, 10, "the graph has no output 'Y'"),
    ("Z[i,j] <- X[i,j]\noutput Z\ntie W <- Z", 5, 5, "the graph has no input 'W'; known: X, Y"),
    ("Z[i,j] <- X[i,j]\noutput Z\ntie Z <- Z", 5, 5, "the graph has no input 'Z'"),
    ("Z[i,j] <- X[i,j]\noutput Z\ntie X <- ZZ", 5, 10, "no output 'ZZ'; did you mean 'Z'"),
    ("Z[i,j] <- X[i,j]\ntie X <- Z", 4, 10, "the graph has no output 'Z'"),
    ("Z[i,j] <- X[i,j]\noutput Z\ntie Y <- Z", 5, 10, r"\[4, 5\], but Z\[i,j\] is .* \[3, 4\]"),
    ("Z[i,j] <- float64(X[i,j])\noutput Z\ntie X <- Z", 5, 10, r"is float64 \[3, 4\]"),
    ("Z[i: 3, j: 4] <- fill 0.5\noutput Z\ntie X <- Z", 5, 10, "not computed, so that 'X'"),
    ("output X\ntie X <- X", 4, 10, r"X\[i,j\] is not computed"),
    ("input U[i, j]\nZ[i,j] <- X[i,j]\noutput Z\ntie X <- Z, U <- Z", 6, 18, "tied to two inputs"),
    ("Z[i,j] <- X[i,j]\noutput Z\ntie X <- Z\ntie X <- Z", 6, 5, "'X' is tied already, to 'Z'"),
    ("tie X Z", 3, 7, "unexpected 'Z' here; expected '<-'"),
    ("tie X[i,j] <- Z", 3, 6, r"unexpected '\[' here; expected '<-'"),
    ("tie X <- Z[i,j]", 3, 11, r"unexpected '\[' here"),
    ("Z[i] <- sub X[i,j]", 3, 9, "'sub' is not a known commutative monoid"),
    ("Z[i] <- summ X[i,j]", 3, 9, "did you mean 'sum'"),
    ("Z[i] <- softmax X[i,j]", 3, 9, r"'softmax' is a macro: write softmax\[j\]"),
    ("Z[i,j] <- sofmax[j] X[i,j]", 3, 11, "unknown macro 'sofmax'; did you mean 'softmax'"),
    ("Z[i,j] <- softmax[k] X[i,j]", 3, 11, r"X\[i,j\] has no label 'k'"),
    ("Z[i,j] <- softmax[i, j] X[i,j]", 3, 11, r"softmax\[j\] takes 1 labels"),
    ("Z[i] <- softmax[j] X[i,j]", 3, 9, r"softmax yields labels \[i, j\], but Z has \[i\]"),
    ("Z[i,j] <- 2 * softmax[j]", 3, 15, "'softmax' is a macro"),
    ("Z[i,j] <- attention[i](X[i,j])", 3, 11, r"attention\[t, d\] takes 2 labels"),
    ("Z[i,j] <- attention[i, j](X[i,j])", 3, 11, "takes 3 tensors"),
    ("Z[i,j] <- rms_norm[j](X[i,j], X[i,j], epz = 1)", 3, 11, "no option 'epz'"),
    ("Z[i,j] <- X[*i, j]", 3, 14, "X cannot have this index here"),
    ("Z[i,j] <- X[i,j] with Y[j, *k]", 3, 29, "Y cannot have this index here"),
    ("Z[i,j] <- softmax[i] X[*i, j]", 3, 25, "X cannot have this index here"),
    ("Z[i,j] <- rms_norm[j](X[i,j], X[i,j], eps = 1, eps = 2)", 3, 11, "given twice"),
    ("macro f[j, j](A[j]) -> B[] {\nB[] <- sum A[j]\n}", 3, 7, "'j' appears twice in its head"),
    ("macro f(A[*b]) -> B[*b] {\nB[*b] <- A[*b]\n}\n" * 2, 6, 7, "'f' is defined already"),
    ("Z[i,j] <- X[i,j] * rate", 3, 20, "unknown scalar 'rate'"),
    ("Z[i,j] <- X * 2", 3, 11, r"'X' is a tensor: write X\["),
    ("Z[i,j] <- expp(X[i,j])", 3, 11, "unknown function 'expp'; did you mean 'exp'"),
    ("Z[i,j] <- exp(X[i,j], 2)", 3, 11, "exp takes 1 operands, got 2"),
    ("Z[i,j] <- X[i,j] +", 3, 19, "the end of the line comes too early here; expected a name"),
    ("Z[i,j] <- X[i,j", 3, 16, "expected ',' or ':' or 'in' or ']'|expected"),
    ("Z[i,j] <- X[i,j][j]", 3, 17, r"unexpected '\[' here; expected an operator or "),
    ("Z[i,j] <- X[i,j] + [i]", 3, 20, r"unexpected '\[' here; expected a name or "),
    ("Z[i,j] <- X[ i , j j ]", 3, 20, r"unexpected 'j' here; expected ',' or ':' or "),
    ("Z <- sum X[i,j]", 3, 3, r"unexpected '<-' here; expected '\['\n"),
    ("Z[" + "i, " * 20_000 + "i] <- 1", 3, 30_000, "more than 20,000 words and signs"),
    ("input " + "W[i, j], " * 5_000, 3, 25_720, "more than 20,000 words and signs"),
    ("Z[i,j] <- X[i,j] ? 2", 3, 18, r"character '\?' is unexpected here"),
    ("Z[i,j] X[i,j]", 3, 8, "expected '<-'"),
    ("X[i,j] <- X[i,j]", 3, 1, "the name 'X' is taken"),
    ("lr[i] <- sum X[i,j]", 3, 1, "the name 'lr' is taken"),
    ("fill[i] <- sum X[i,j]", 3, 1, "expected|a word of the language"),
    ("output W", 3, 8, "no tensor 'W'"),
    ("input W[i]", 3, 9, None),
    ("input W[q]", 3, 9, "label 'q' has no size"),
    ("Z[i] <- X[i, 4]", 3, 14, "index 4 of X is outside 0 to 3"),
    ("Z[i] <- X[i, -5]", 3, 15, "index -5 of X is outside 0 to 3"),
    ("Z[i,j] <- X[i,j] + index(q)", 3, 26, "label 'q' has no size"),
    ("Z[i,j] <- X[i,j] + index(i, j)", 3, 20, r"index\(label\) takes one label"),
    ("Z[i] <- sum[i] X[i,j]", 3, 9, "label '.' is (not aggregated|aggregated too)"),
    ("Z[] <- sum[i] X[i,j]", 3, 8, "label 'j' is aggregated too: name it"),
    ("Z[i,j] <- softmax[j] X[i,j] * 2", 3, 11, "takes a tensor, or an expression in parentheses"),
    ("Z[i,j] <- softmax[j](X[i,j]) * 2", 3, 11, "and nothing after"),
    ("Z[i,j] <- sofmax[j] X[i,j] * 2", 3, 11, "unknown macro 'sofmax'; did you mean 'softmax'"),
    ("Z[] <- sum[q] 1", 3, 12, "label 'q' has no size"),
    ("input W[i: 2.5]", 3, 12, "'2.5' is not a whole number"),
    ("input W[i: 3, i: 3]", 3, 15, "label 'i' appears twice in W"),
    ("input W[i: 3] float31", 3, 7, "unknown dtype 'float31'; did you mean"),
    ("input V[i: 7]\ninput W[i]", 4, 9, "declared with sizes 3 and 7: say which"),
    ("Z[i] <- X[i, j in 2:9]", 3, 9, "j in 2:9 is not a range within X's size 4"),
    ("Z[i,j] <- X[i, (j: 3, k)]", 3, 1, "."),
    ("Z[i,p,q] <- X[i, (p: 3, q)]", 3, 1, "p: 3 does not divide a dimension of size 4"),
    ("Z[i,j] <- concat[k](X[i,j])", 3, 1, "cannot concatenate along 'k'"),
    ("Z[n,j] <- X[X[n,j], j]", 3, 1, "indices are integers, but X has dtype float32"),
    ("monoid m(x; y) = x - y identity 0", 3, 8, "not a commutative monoid: x ⊕ y ≠ y ⊕ x"),
    ("monoid m(x; y, z) = x + y identity 0", 3, 8, "combines 1 with 2 values"),
    ("monoid m(x; y) = x + q identity 0", 3, 22, "unknown name 'q'"),
    ("monoid m(x; y) = x + y identity x", 3, 8, "1 literal numbers"),
    (
        "macro m[j](A[*b, j]) -> B[*b] {\nB[*b] <- m[j] A[*b, j]\n}\nZ[i] <- m[j] X[i,j]",
        *(6, 9, "calls itself: m → m"),
    ),
    ("macro m[j](A[q]) -> B[] {\nB[] <- sum A[q]\n}", 3, 7, "'q' of A is not among its labels"),
    ("macro m[j](A[*b, *c]) -> B[*b] {\nB[*b] <- sum A[*b, j]\n}", 3, 7, r"more than one \*"),
    ("macro m[j](A[j]) -> B[] {\nC[] <- sum A[j]\n}", 3, 7, "last statement must assign B"),
    ("Z[i,j] <- " + "-" * 500 + "X[i,j]", 3, 511, "more than 100 deep"),
    ("Z[i,j] <- X[i,j] + 99999999999999999999", 3, 1, "64 bits"),
    ("input W[i: 4611686018427387904, j: 4]", 3, 7, "more than 2.62 elements"),
    ("input W[i: 99999999999999999999]", 3, 12, "too large for a size"),
    ("input " + "W" * 300 + "[i: 3]", 3, 7, "cannot name a tensor"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "line", "column", "message"), ERRORS)
def test_messages(text: str, line: int, column: int, message: str | None) -> None:
    if message is None:
        ed.parse(HEAD + text)
        return
    with pytest.raises(ed.TextError, match=message) as caught:
        ed.parse(HEAD + text, "model.ein")
    assert (caught.value.line, caught.value.column) == (line, column)
    first, shown, caret = str(caught.value).split("\n")
    assert first.startswith(f"model.ein:{line}:{column}: ")
    assert caret.index("^") <= len(shown)


def test_errors_inside_macros_point_at_the_call() -> None:
    text = "macro m[j](A[*b, j]) -> B[*b] {\n  B[*b] <- sum A[*b, j] * nothing\n}\n"
    with pytest.raises(ed.TextError, match="in macro m: unknown scalar 'nothing'") as caught:
        ed.parse(f"{HEAD}{text}Z[i] <- m[j] X[i,j]")
    assert (caught.value.line, caught.value.column) == (6, 9)


def hostile() -> dict[str, str]:
    doubling = "\n".join(
        f"macro m{k}[j](A[*b, j]) -> B[*b, j] {{\n C[*b, j] <- m{k - 1}[j] A[*b, j]\n"
        f" B[*b, j] <- m{k - 1}[j] C[*b, j]\n}}"
        for k in range(1, 30)
    )
    start = "macro m0[j](A[*b, j]) -> B[*b, j] {\n B[*b, j] <- A[*b, j]\n}\n"
    return {
        "parentheses": "Z[i] <- " + "(" * 200_000,
        "closed parentheses": "input X[i: 3]\nZ[i] <- " + "(" * 9000 + "X[i]" + ")" * 9000 + "+",
        "a long sum": "input X[i: 3]\nZ[i] <- X[i]" + " + X[i]" * 100_000,
        "a million tokens": "input X[" + "i, " * 1_000_000 + "]",
        "too long": "#" * (MAX_TEXT + 1),
        "a huge number": "input X[i: " + "9" * 100_000 + "]",
        "null bytes": "input X[i: 3]\x00",
        "brackets": "[" * 100_000,
        "doubling macros": f"{start}{doubling}\ninput X[i: 3]\nZ[i] <- m29[i] X[i]",
    }


@pytest.mark.parametrize("name", sorted(hostile()))
def test_hostile_texts_fail_fast(name: str) -> None:
    started = time.monotonic()
    with pytest.raises(ed.TextError):
        ed.parse(hostile()[name])
    # Not a measurement: a guard against hanging, two orders above what it takes.
    assert time.monotonic() - started < 300


def test_mutated_texts_raise_nothing_but_our_errors() -> None:
    rng = random.Random(0)
    texts = [path.read_text() for path in sorted(Path("examples").glob("*.ein"))]
    texts = [text.replace(": 2000", ": 3").replace(": 100", ": 3") for text in texts]
    words = "[ ] ( ) <- * ** : , in sum X = { } 1e9999 with fill i é ; .1 not macro - 0"
    pieces = [*words.split(" "), "\n", "\t", ""]
    for _ in range(600):
        text = rng.choice(texts)
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(text))
            until = at + rng.choice([0, 0, 1, 3])
            text = text[:at] + rng.choice(pieces) + text[until:]
        try:
            graph = ed.parse(text)
        except ed.EinDecompError:
            continue
        assert ed.parse(str(graph)) == graph


def test_files_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.ein"
    path.write_bytes(b"input X[i: 3]\xff")
    with pytest.raises(ed.EinDecompError, match="not UTF-8 text"):
        ed.load(path)
    path.write_bytes(b"\xef\xbb\xbfinput X[i: 3]\r\nZ[i] <- X[i]\r\n\r\noutput Z")
    assert len(ed.load(path)) == 2


def test_a_sign_may_follow_an_aggregation() -> None:
    head = "input T[b: 2, c: 3], P[b, c]\nscalar max\n"
    sums = [f"sum {s}T[b,c] * log(P[b,c])" for s in ("-", "+")] + ["sum .5 * T[b,c]"]
    found = [str(ed.parse(f"{head}loss[] <- {text}\noutput loss")["loss"].op) for text in sums]
    assert found == [
        " <- sum -[b c] * log([b c])", " <- sum [b c] * log([b c])", " <- sum 0.5 * [b c]",
    ]  # fmt: skip
    difference = ed.parse(f"{head}Z[b,c] <- max - T[b,c]\noutput Z")
    assert "Z[b,c] <- max - T[b,c]" in str(difference)
