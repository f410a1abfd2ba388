"""Inputs by the paths of their files: the same on every engine, read by tiles, never unpickled."""

from __future__ import annotations

import json
import os
import pickle
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from agreement import JAX, TORCH
from safetensors.numpy import save_file

import eindecomp as ed
from eindecomp.engines.array_files import open_stored

MATMUL = "input X[i: 6, j: 8], Y[j, k: 4]\nZ[i,k] <- sum X[i,j] * Y[j,k]\noutput Z"
KINDS = ["npy", "zarr", "zarr group", "safetensors", "safetensors#"]


def store(kind, folder, name, array):
    """Write an array; the path by which it is given."""
    if kind == "npy":
        np.save(folder / f"{name}.npy", array)
        return folder / f"{name}.npy"
    if kind.startswith("zarr"):
        zarr = pytest.importorskip("zarr", reason="zarr is not installed")
        if kind == "zarr":
            place, inside = folder / f"{name}.zarr", None
        else:
            place, inside = folder / "all.zarr", name
            zarr.open_group(place, mode="a")
        stored = zarr.create_array(
            place, name=inside, shape=array.shape, dtype=array.dtype, chunks=(4, 3)
        )
        stored[...] = array
        return str(place)
    other = "some." + name if kind.endswith("#") else name
    save_file({other: array, "other": np.zeros(3)}, folder / f"{name}.safetensors")
    return str(folder / f"{name}.safetensors") + (f"#{other}" if kind.endswith("#") else "")


@pytest.mark.one_in(3)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("engine", ["threads", "apart", TORCH, JAX])
@pytest.mark.parametrize("dtype", [np.float32, np.int16])
def test_files_are_as_good_as_arrays(kind, engine, dtype, tmp_path):
    graph = ed.parse(MATMUL)
    rng = np.random.default_rng(0)
    arrays = {v.name: rng.integers(-9, 9, v.shape).astype(dtype) for v in graph.inputs}
    paths = {name: store(kind, tmp_path, name, array) for name, array in arrays.items()}
    for strategy in (["i"], ["j"]):
        plan = ed.plan(graph, 4, strategy=strategy)
        found = ed.run(plan, paths, engine)
        np.testing.assert_array_equal(found["Z"], ed.evaluate(graph, arrays)["Z"])
        with ed.compile(plan, engine) as executable:
            placed = executable.place({"X": paths["X"]})
            again = executable({**placed, "Y": paths["Y"]})
            np.testing.assert_array_equal(again["Z"], found["Z"])


@pytest.mark.parametrize("kind", ["npy", "zarr", "safetensors"])
def test_nothing_is_read_before_it_is_sliced(kind, tmp_path):
    """What stands for a file is no copy of it."""
    array = np.arange(48, dtype=np.float32).reshape(6, 8)
    found = open_stored(store(kind, tmp_path, "X", array), "X")
    np.testing.assert_array_equal(found[2:4, 1:5], array[2:4, 1:5])
    assert kind == "zarr" or not found.flags.owndata
    assert kind == "zarr" or not found.flags.writeable


def test_low_precision(tmp_path):
    graph = ed.parse("input X[i: 5] bfloat16\nZ[i] <- X[i] + 1\noutput Z")
    x = np.arange(5).astype(ml_dtypes.bfloat16)
    save_file({"X": x}, tmp_path / "x.safetensors")
    np.save(tmp_path / "x.npy", x)
    for path in (tmp_path / "x.safetensors", tmp_path / "x.npy"):
        np.testing.assert_array_equal(ed.run(ed.plan(graph, 2), {"X": path})["Z"], x + 1)


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("none.npy", r"input 'X': .*none\.npy cannot be read: No such file"),
        ("none.zarr", r"input 'X': there is no .*none\.zarr"),
        ("none.safetensors", r"input 'X': .*none\.safetensors is missing"),
        ("x.txt", r"input 'X': .*is no file of \.npy, \.zarr, \.safetensors"),
        ("bad.npy", r"input 'X': .*bad\.npy is no \.npy file: it does not begin as one"),
        ("bad.zarr", r"input 'X': .*bad\.zarr is no \.zarr file of numbers"),
        ("bad.safetensors", r"input 'X': .*bad\.safetensors is no whole safetensors file"),
        ("good.safetensors", r"input 'X': .*has no tensor 'X': it has W"),
        ("good.safetensors#V", r"input 'X': .*has no tensor 'V': it has W"),
        ("good.safetensors#W", r"input X\[i,j\] has shape \(6, 8\), got \(2, 3\)"),
        ("objects.npy", r"input 'X': .*objects\.npy is no \.npy file of numbers"),
        ("good.zarr#W", r"input 'X': .*good\.zarr holds one array: there is no 'W' in it"),
        ("good.npy#W", r"input 'X': .*good\.npy holds one array: there is no 'W' in it"),
    ],
)
def test_files_that_cannot_be_read_are_named(place, message, tmp_path):
    for kind in ("npy", "safetensors"):
        (tmp_path / f"bad.{kind}").write_bytes(b"nonsense, and long enough for a header")
    (tmp_path / "bad.zarr").mkdir()
    save_file({"W": np.zeros((2, 3), np.float32)}, tmp_path / "good.safetensors")
    np.save(tmp_path / "good.npy", np.zeros(2))
    np.save(tmp_path / "objects.npy", np.array([{}], object), allow_pickle=True)
    if "zarr" in place:
        zarr = pytest.importorskip("zarr", reason="zarr is not installed")
        zarr.create_array(tmp_path / "good.zarr", shape=(6, 8), dtype=np.float32)
    plan = ed.plan(ed.parse(MATMUL), 2)
    with pytest.raises(ed.InputError, match=message):
        ed.run(plan, {"X": str(tmp_path / place), "Y": np.zeros((8, 4))})


@pytest.mark.parametrize("engine", ["threads", "apart", TORCH, JAX])
@pytest.mark.parametrize("kind", ["npy", "zarr", "safetensors"])
def test_only_regular_files_are_read(kind, engine, tmp_path):
    if kind == "zarr":
        pytest.importorskip("zarr", reason="zarr is not installed")
    (tmp_path / f"zero.{kind}").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / f"pipe.{kind}")
    plan = ed.plan(ed.parse(MATMUL), 2)
    for name in (f"zero.{kind}", f"pipe.{kind}"):
        with pytest.raises(ed.InputError, match=rf"input 'X': .*{name} is no regular file"):
            ed.run(plan, {"X": tmp_path / name, "Y": np.zeros((8, 4))}, engine)


def test_without_zarr_the_error_says_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "zarr", None)
    message = r"input 'X': zarr is not installed: pip install 'eindecomp\[zarr\]'"
    with pytest.raises(ed.InputError, match=message):
        open_stored(tmp_path / "x.zarr", "X")


class Bomb:
    """What runs code when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.mark.parametrize("where", ["compressor", "filters", "both"])
def test_chunks_of_zarr_are_not_unpickled(tmp_path, where):
    pytest.importorskip("zarr", reason="zarr is not installed")
    folder, trace = tmp_path / "x.zarr", tmp_path / "it ran"
    folder.mkdir()
    coder = {"id": "pickle", "protocol": 5}
    about = {
        "zarr_format": 2, "shape": [6, 8], "chunks": [6, 8], "dtype": "<f4", "order": "C",
        "compressor": coder if where == "compressor" else None, "fill_value": 0,
        "filters": {"filters": [coder], "both": [{"id": "zlib", "level": 1}, coder]}.get(where),
    }  # fmt: skip
    (folder / ".zarray").write_text(json.dumps(about))
    (folder / "0.0").write_bytes(pickle.dumps(Bomb(trace)))
    plan = ed.plan(ed.parse(MATMUL), 2)
    with pytest.raises(ed.InputError, match=r"input 'X'.*pickle"):
        ed.run(plan, {"X": folder, "Y": np.zeros((8, 4))})
    assert not trace.exists()


def test_chunks_of_zarr_in_an_unknown_code_are_not_read(tmp_path):
    pytest.importorskip("zarr", reason="zarr is not installed")
    from numcodecs.abc import Codec
    from numcodecs.registry import codec_registry, register_codec

    class Runs(Codec):
        codec_id = "of_my_own"

        def encode(self, buf):
            return buf

        def decode(self, _buf, _out=None):
            pytest.fail("it ran")

    register_codec(Runs)
    folder = tmp_path / "x.zarr"
    folder.mkdir()
    about = {
        "zarr_format": 2, "shape": [6, 8], "chunks": [6, 8], "dtype": "<f4", "order": "C",
        "compressor": {"id": "of_my_own"}, "fill_value": 0, "filters": None,
    }  # fmt: skip
    (folder / ".zarray").write_text(json.dumps(about))
    (folder / "0.0").write_bytes(bytes(192))
    try:
        with pytest.raises(ed.InputError, match="coded by of_my_own, which are not read"):
            open_stored(folder, "X")
    finally:
        del codec_registry["of_my_own"]


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("how", ["plain", "usual", "gzip", "blosc", "shards", "delta"])
def test_chunks_of_zarr_in_known_codes_are_read(tmp_path, version, how):
    zarr = pytest.importorskip("zarr", reason="zarr is not installed")
    import numcodecs

    old = {"plain": None, "gzip": numcodecs.GZip(), "blosc": numcodecs.Blosc()}
    new = {"plain": None, "gzip": zarr.codecs.GzipCodec(), "blosc": zarr.codecs.BloscCodec()}
    known = old if version == 2 else new
    more = {"compressors": known[how]} if how in known else {}
    if how == "shards":
        if version == 2:
            pytest.skip("version 2 has none")
        more = {"shards": (6, 8)}
    if how == "delta":
        if version == 3:
            pytest.skip("of version 2")
        more = {"filters": [numcodecs.Delta("f4")]}
    x = np.arange(48, dtype="f4").reshape(6, 8)
    zarr.create_array(tmp_path / "x.zarr", data=x, chunks=(3, 4), zarr_format=version, **more)
    np.testing.assert_array_equal(open_stored(tmp_path / "x.zarr", "X")[:], x)


def test_the_command_line_takes_them_all(tmp_path, capsys):
    from eindecomp.cli import main

    graph = ed.parse(MATMUL)
    (tmp_path / "g.ein").write_text(MATMUL)
    rng = np.random.default_rng(0)
    arrays = {v.name: rng.standard_normal(v.shape).astype(v.dtype) for v in graph.inputs}
    x = store("safetensors#", tmp_path, "X", arrays["X"])
    y = store("zarr", tmp_path, "Y", arrays["Y"])
    out = tmp_path / "out.npz"
    texts = ["run", tmp_path / "g.ein", "-p", 2, "-o", out, "--check"]
    texts += ["--data", f"X={x}", "--data", f"Y={y}"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["eindecomp", *map(str, texts)])
        with pytest.raises(SystemExit) as ended:
            main()
    assert not ended.value.code, capsys.readouterr().err
    np.testing.assert_allclose(np.load(out)["Z"], arrays["X"] @ arrays["Y"], rtol=1e-5)
