"""Files in the extreme-classification format: read as written, from any batch on, or refused."""

from __future__ import annotations

import warnings
from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eindecomp as ed
from eindecomp import models

POINTS = ["1 0:0.5 2:1.5", "0,2 1:-2e-3", "2 0:1 1:1 2:1", "1,0 2:7"]


def write(tmp_path, lines, header="4 3 3"):
    path = tmp_path / "data.txt"
    path.write_text("\n".join([header, *lines, ""]))
    return path


def test_points_become_dense_rows(tmp_path):
    data = models.extreme_file(write(tmp_path, POINTS), 2, shuffle=False, epochs=1)
    assert (data.points, data.features, data.classes) == (4, 3, 3)
    first, second = data.batches()
    np.testing.assert_array_equal(first["x"], np.array([[0.5, 0, 1.5], [0, -2e-3, 0]], "f4"))
    np.testing.assert_array_equal(second["y"], np.array([2, 1], np.int32))
    assert first["x"].dtype == np.float32
    assert first["y"].dtype == np.int32


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("last", [True, False])
def test_line_endings_do_not_matter(tmp_path, ending, last):
    path = tmp_path / "data.txt"
    text = ending.join(["4 3 3", *POINTS]) + ending * last
    path.write_bytes(text.encode())
    [batch] = models.extreme_file(path, 4, shuffle=False, epochs=1).batches()
    np.testing.assert_array_equal(batch["y"], [1, 0, 2, 1])
    assert batch["x"][3, 2] == 7


def test_fewer_features_leave_out_the_rest(tmp_path):
    data = models.extreme_file(write(tmp_path, POINTS), 4, features=1, shuffle=False)
    np.testing.assert_array_equal(next(data.batches())["x"], [[0.5], [0], [1], [0]])


@settings(max_examples=25)
@given(values=st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1))
def test_numbers_are_read_to_the_last_bit(tmp_path_factory, values):
    path = tmp_path_factory.mktemp("numbers") / "data.txt"
    texts = [repr(value) for value in values] + [f"{value:.30e}" for value in values]
    lines = [f"0 0:{text}" for text in texts]
    path.write_text(f"{len(lines)} 1 1\n" + "\n".join(lines) + "\n")
    [batch] = models.extreme_file(path, len(lines), shuffle=False, epochs=1).batches()
    np.testing.assert_array_equal(batch["x"][:, 0], np.array(values * 2, np.float32))


@settings(max_examples=25)
@given(
    points=st.integers(3, 60), batch=st.integers(1, 7), window=st.integers(1, 30),
    start=st.integers(0, 40), target=st.sampled_from(["first", "random"]),
)  # fmt: skip
def test_reading_begins_at_any_batch(tmp_path_factory, points, batch, window, start, target):
    path = tmp_path_factory.mktemp("resume") / "data.txt"
    lines = [f"{k},{(k + 1) % points} {k}:1" for k in range(points)]
    path.write_text(f"{points} {points} {points}\n" + "\n".join(lines) + "\n")
    batch = min(batch, points)
    data = models.extreme_file(path, batch, window=window, seed=5, target=target)
    whole = list(islice(data.batches(), start + 3))
    for left, right in zip(whole[start:], data.batches(start), strict=False):
        np.testing.assert_array_equal(left["x"], right["x"])
        np.testing.assert_array_equal(left["y"], right["y"])


def test_an_epoch_has_every_point_once_and_shuffles_anew(tmp_path):
    lines = [f"{k} {k}:1" for k in range(12)]
    path = write(tmp_path, lines, "12 12 12")
    data = models.extreme_file(path, 3, window=6, epochs=2)
    drawn = np.array([batch["y"] for batch in data.batches()]).reshape(2, 2, 6)
    for epoch in drawn:
        assert sorted(epoch[0]) == list(range(6))
        assert sorted(epoch[1]) == list(range(6, 12))
    assert drawn[0].tolist() != drawn[1].tolist()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1 0:0.5 3:1", r"data.txt:3:9: the feature of 3:1 is outside 0 to 2"),
        ("1 99999999999999999999:1", "outside 0 to 2"),
        ("1 -1:2", "3:3: expected feature:value, not '-1:2'"),
        ("1 x:2", "expected feature:value, not 'x:2'"),
        ("1 0", "expected feature:value, not '0'"),
        ("1 0:", "3:3: the value of '0:' is no number"),
        ("1 0:1.2.3", "the value of '0:1.2.3' is no number"),
        ("1 0:1e", "is no number"),
        ("1 0:--1", "is no number"),
        ("1 0:nan", "the value of '0:nan' is not finite"),
        ("1 0:-Infinity", "is not finite"),
        ("1 0:1e39", "is not finite as float32"),
        ("1 0:1e999999999999", "is not finite as float32"),
        ("1 0:1 0:2", "3:7: the feature of 0:2 appears twice"),
        ("3 0:1", "data.txt:3:1: label 3 is outside 0 to 2"),
        ("0,7 0:1", "3:3: label 7 is outside"),
        ("1,,2 0:1", "labels are whole numbers"),
        ("1.5 0:1", "labels are whole numbers"),
        ("-1 0:1", "labels are whole numbers"),
    ],
)
def test_malformed_lines_are_named(tmp_path, line, message):
    path = write(tmp_path, ["1 0:1", line, *POINTS[:2]])
    with pytest.raises(ed.EinDecompError, match=message):
        list(models.extreme_file(path, 2, epochs=1).batches())


SKIPPED = [" 0:1", "0:1 1:1", "", "\t2:7", "2:1e-50 0:1.23456789012345678901"]


def with_gaps(tmp_path, lines, gaps):
    """A file with unlabelled points before some of its lines, and the same file without."""
    full = [x for k, line in enumerate([*lines, None]) for x in (*gaps.get(k, ()), line)][:-1]
    sizes = f"{len(lines)} {len(lines)}"
    (tmp_path / "bare.txt").write_text("\n".join([f"{len(lines)} {sizes}", *lines, ""]))
    (tmp_path / "gaps.txt").write_text("\n".join([f"{len(full)} {sizes}", *full, ""]))
    return tmp_path / "bare.txt", tmp_path / "gaps.txt", len(full) - len(lines)


@settings(max_examples=25)
@given(
    points=st.integers(3, 40), batch=st.integers(1, 5), window=st.integers(1, 20),
    start=st.integers(0, 40), target=st.sampled_from(["first", "random"]),
    gaps=st.dictionaries(st.integers(0, 40), st.lists(st.sampled_from(SKIPPED), max_size=3)),
)  # fmt: skip
def test_unlabelled_points_are_skipped_and_counted(
    tmp_path_factory, points, batch, window, start, target, gaps
):
    lines = [f"{k},{(k + 1) % points} {k}:1" for k in range(points)]
    bare, full, count = with_gaps(tmp_path_factory.mktemp("gaps"), lines, gaps)
    options = {"batch": min(batch, points), "window": window, "seed": 5, "target": target}
    wanted = models.extreme_file(bare, **options)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        data = models.extreme_file(full, **options)
    told = [str(warning.message) for warning in caught]
    assert (len(told), data.unlabelled) == (1 if count else 0, count)
    assert all(f"{count} of {count + points} points have no label" in text for text in told)
    assert data.batches_per_epoch == wanted.batches_per_epoch
    for left, right, _ in zip(wanted.batches(start), data.batches(start), range(20), strict=False):
        np.testing.assert_array_equal(left["x"], right["x"])
        np.testing.assert_array_equal(left["y"], right["y"])


def test_lines_are_found_unlabelled_wherever_chunks_end(tmp_path, monkeypatch):
    monkeypatch.setattr("eindecomp.models.extreme._CHUNK", 1)
    with pytest.warns(RuntimeWarning, match="4 of 8 points have no label and are skipped"):
        data = models.extreme_file(write(tmp_path, [*SKIPPED[:4], *POINTS], "8 3 3"), 4, epochs=1)
    assert sum(len(batch["y"]) for batch in data.batches()) == 4


def test_unlabelled_points_are_still_checked(tmp_path):
    path = write(tmp_path, [*POINTS[:2], " 0:x"], "3 3 3")
    with pytest.warns(RuntimeWarning, match="1 of 3"):
        data = models.extreme_file(path, 2, epochs=1)
    with pytest.raises(ed.InputError, match=r"data.txt:4:2: the value of '0:x' is no number"):
        list(data.batches())
    with (
        pytest.warns(RuntimeWarning, match="1 of 3"),
        pytest.raises(ed.InputError, match="2 labelled points are less than a batch of 3"),
    ):
        models.extreme_file(path, 3)


@pytest.mark.parametrize("header", ["", "4 3", "4 3 x", "4 3 3 3", "-4 3 3", "4 0 3", "1 0:0.5"])
def test_wrong_headers_are_named(tmp_path, header):
    with pytest.raises(ed.EinDecompError, match=r"data.txt:1: "):
        models.extreme_file(write(tmp_path, POINTS, header), 2)


def test_files_of_another_length_than_announced_are_refused(tmp_path):
    data = models.extreme_file(write(tmp_path, POINTS, "6 3 3"), 2, epochs=1)
    with pytest.raises(ed.EinDecompError, match=r"data.txt:5: the file ends after 4 points"):
        list(data.batches())
    data = models.extreme_file(write(tmp_path, POINTS, "3 3 3"), 2, epochs=1)
    with pytest.raises(ed.EinDecompError, match=r"data.txt:5: more lines than the 3 points"):
        list(data.batches())


@pytest.mark.parametrize("cut", range(20, 60, 3))
def test_a_file_that_is_cut_off_is_refused_or_ends_in_a_whole_point(tmp_path, cut):
    path = write(tmp_path, POINTS)
    whole = path.read_bytes()
    path.write_bytes(whole[:cut])
    data = models.extreme_file(path, 4, epochs=1)
    if whole[:cut].count(b"\n") < 4:
        with pytest.raises(ed.EinDecompError, match=r"data.txt:\d"):
            list(data.batches())
    else:
        [batch] = data.batches()
        assert batch["x"].shape == (4, 3)


def test_a_header_is_not_believed_before_there_is_memory_for_it(tmp_path):
    path = write(tmp_path, POINTS, "4 2147483647 3")
    data = models.extreme_file(path, 4, features=3, epochs=1)
    [batch] = data.batches()
    assert batch["x"].shape == (4, 3)


@pytest.mark.parametrize(
    "options", [{"seed": -1}, {"features": 0}, {"epochs": -1}, {"window": 0}, {"batch": 2.5}]
)
def test_numbers_that_make_no_sense_are_refused(tmp_path, options):
    with pytest.raises(ed.InputError, match=r"must be [01] or more"):
        models.extreme_file(write(tmp_path, POINTS), **{"batch": 2, **options})


def test_batches_are_numbered_from_0_on(tmp_path):
    for data in (models.extreme_file(write(tmp_path, POINTS), 2), models.Synthetic(2, 3, 4)):
        with pytest.raises(ed.InputError, match="start must be 0 or more, not -1"):
            next(data.batches(-1))


@given(
    at=st.integers(6, 55), byte=st.sampled_from(b"\x00\t\n\r ,.:+-09e\xff"), insert=st.booleans()
)
def test_a_changed_byte_is_read_or_refused(tmp_path_factory, at, byte, insert):
    path = write(tmp_path_factory.mktemp("changed"), POINTS)
    text = path.read_bytes()
    path.write_bytes(text[:at] + bytes([byte]) + text[at + (not insert) :])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            data = models.extreme_file(path, 2, shuffle=False, epochs=1)
        found = list(data.batches())
    except ed.InputError:
        return
    assert len(found) == (4 - data.unlabelled) // 2
    assert all(np.isfinite(batch["x"]).all() and batch["y"].max() < 3 for batch in found)


def test_what_is_asked_for_is_checked(tmp_path):
    path = write(tmp_path, POINTS)
    for options, message in (
        ({"batch": 0}, "batch must be 1 or more"),
        ({"batch": 5}, "4 points are less than a batch of 5"),
        ({"batch": 2, "features": 4}, "has 3 features, not 4"),
        ({"batch": 2, "target": "last"}, "target is 'first' or 'random'"),
    ):
        with pytest.raises(ed.EinDecompError, match=message):
            models.extreme_file(path, **options)
    with pytest.raises(ed.EinDecompError, match="cannot be read"):
        models.extreme_file(tmp_path / "none.txt", 2)


def test_synthetic_points_are_the_same_from_memory_and_from_a_file(tmp_path):
    made = models.Synthetic(4, 50, 6, nonzeros=20, seed=9)
    made.write(tmp_path / "data.txt", 11)
    data = models.extreme_file(tmp_path / "data.txt", 4, shuffle=False, epochs=1)
    assert data.points == 11
    for left, right in zip(data.batches(), made.batches(), strict=False):
        np.testing.assert_array_equal(left["x"], right["x"])
        np.testing.assert_array_equal(left["y"], right["y"])
    later = next(made.batches(1))
    np.testing.assert_array_equal(later["x"], next(islice(made.batches(), 1, None))["x"])
