"""Readers of untrusted files, each with a small valid file of its kind."""

from __future__ import annotations

import gzip
import json
import pickle
import struct
import tarfile
import tempfile
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from PIL import Image

import volmin
from torture.files import Reader
from volmin import methods, networks, noise
from volmin.auditing.decisions import apply_decisions
from volmin.data import TensorLoader
from volmin.data.images import load_images
from volmin.data.label_files import read_labels
from volmin.data.sources import clothing1m
from volmin.data.sources.cifar import Layout, load_cifar
from volmin.data.sources.idx import read_parts
from volmin.data.tables import TableEncoder, load_table
from volmin.experiments import grid, run, spec
from volmin.experiments.records import read_records, write_records
from volmin.io.arrays import read_array
from volmin.io.sealed import read_sealed_bytes, write_sealed_bytes, write_sealed_json

ROWS = 6
LABELS = np.arange(ROWS) % 2


def _idx(folder: Path, pack: Callable[[bytes], bytes] = bytes) -> None:
    suffix = ".gz" if pack is not bytes else ""
    for part in ("train", "t10k"):
        images = bytes([0, 0, 8, 3]) + struct.pack(">3I", ROWS, 4, 4) + bytes(range(ROWS * 16))
        labels = bytes([0, 0, 8, 1]) + struct.pack(">I", ROWS) + bytes(LABELS.tolist())
        (folder / f"{part}-images-idx3-ubyte{suffix}").write_bytes(pack(images))
        (folder / f"{part}-labels-idx1-ubyte{suffix}").write_bytes(pack(labels))


def _read_idx(folder: Path) -> None:
    read_parts(folder, "MNIST", (".",))


_LAYOUT = Layout("mini", "Mini", "mini-py", ("batch",), "test", "meta", "labels", "names", 2, "mini", "", "")


def _cifar(folder: Path, protocol: int) -> None:
    (folder / "mini-py").mkdir()
    generator = np.random.default_rng(0)
    for name in ("batch", "test"):
        pixels = generator.integers(0, 256, (2, 3072), np.uint8)
        content = {"data": pixels, "labels": [0, 1], "batch_label": "one of one", b"filenames": ["a.png", "b.png"]}
        (folder / "mini-py" / name).write_bytes(pickle.dumps(content, protocol))
    (folder / "mini-py" / "meta").write_bytes(pickle.dumps({"names": ["cat", "dog"], "size": np.int64(3)}, protocol))


def _cifar_archive(folder: Path, mode: str) -> None:
    with tempfile.TemporaryDirectory() as place:
        _cifar(Path(place), 2)
        suffix = f".{mode}" if mode else ""
        with tarfile.open(folder / f"mini.tar{suffix}", f"w:{mode}") as archive:  # type: ignore[call-overload]
            archive.add(Path(place) / "mini-py", "mini-py")


def _read_cifar(folder: Path) -> None:
    load_cifar(_LAYOUT, folder)


def _images(folder: Path, suffix: str) -> None:
    generator = np.random.default_rng(0)
    for name in ("cats", "dogs"):
        (folder / name).mkdir()
        for number in range(2):
            pixels = generator.integers(0, 256, (9, 8, 3), np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}{suffix}")


def _table() -> pl.DataFrame:
    count = 12
    return pl.DataFrame(
        {
            "size": [1.5, None, 3.25, -2e10] * (count // 4),
            "colour": ["red", "green", "", 'a "quoted", one'] * (count // 4),
            "day": ["2024-01-31", "2024-02-29"] * (count // 2),
            "label": ["cat", "dog"] * (count // 2),
        }
    )


def _encode(folder: Path) -> None:
    path = next(folder.iterdir())
    table = load_table(path, "label")
    TableEncoder().fit(table.frame, table.feature_columns).transform(table.frame)


def _npz(folder: Path) -> None:
    names = np.array(["cat", "dog"] * 6)
    np.savez(folder / "a.npz", x=np.arange(24.0).reshape(12, 2), small=np.arange(12, dtype=np.int8), label=names)


def _label_sets(folder: Path) -> None:
    sets = {"clean_label": LABELS, "worse_label": LABELS[::-1].copy(), "more": torch.tensor(LABELS)}
    torch.save(sets, folder / "a.pt")


def _read_label_sets(folder: Path) -> None:
    read_labels(folder / "a.pt", "worse_label")


def _clothing(folder: Path) -> None:
    keys = [f"images/0/{number},{number}.jpg" for number in range(4)]
    (folder / "images" / "0").mkdir(parents=True)
    for key in keys:
        (folder / key).write_bytes(b"x")
    pairs = "\n".join(f"{key} {number}" for number, key in enumerate(keys))
    for name in ("noisy_label_kv.txt", "clean_label_kv.txt"):
        (folder / name).write_text(pairs)
    for name in ("noisy_train_key_list.txt", "clean_test_key_list.txt"):
        (folder / name).write_text("\n".join(keys))


@cache
def _finished_run() -> dict[str, bytes]:
    """Files of a short run on a table, which has every kind of file that a run folder may hold."""
    with tempfile.TemporaryDirectory() as place:
        table = pl.concat([_table()] * 10)
        table.write_csv(Path(place) / "table.csv")
        dataset = volmin.load_dataset(Path(place) / "table.csv", label="label")
        identity = {"file": "table.csv", "label": "label", "hash": "0"}
        chosen = spec.resolve("table", "none", "volminnet", epochs=2, data=identity, rows=len(table))
        run.run(run.set_up(chosen, dataset=dataset), Path(place))
        return {path.name: path.read_bytes() for path in chosen.folder(Path(place)).iterdir()}


def _run_folder(folder: Path) -> None:
    for name, content in _finished_run().items():
        (folder / name).write_bytes(content)


def _reseal(folder: Path) -> None:
    try:
        content = json.loads((folder / "result.json").read_text("utf-8"))
        content.pop("seal", None)
        beside = [path.name for path in folder.iterdir() if path.name != "result.json"]
        write_sealed_json(folder / "result.json", content, beside)
    except (ValueError, AttributeError, TypeError, RecursionError):
        return


def _use_run(folder: Path) -> None:
    rows = folder.parent / "rows.csv"  # outside the mutated folder
    if not rows.exists():
        _table().write_csv(rows)
    trained = volmin.load_run(folder)
    trained.predict_proba(rows)
    _ = trained.transition


def _use_records(folder: Path) -> None:
    read_records(folder)


def _records(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as place:
        _run_folder(Path(place))
        write_records(folder / "records.jsonl", read_records(Path(place)))


_UNFINISHED = spec.resolve("digits", "pair:0.2", "volminnet", epochs=2)


def _unfinished(folder: Path) -> None:
    place = _UNFINISHED.folder(folder)
    place.mkdir()
    (place / "spec.json").write_text(json.dumps(_UNFINISHED.as_json()))
    (place / "metrics.jsonl").write_text('{"phase": "train", "epoch": 1, "accuracy": 0.5, "seconds": 0.25}\n' * 2)
    (place / "error.json").write_text('{"error": "OSError", "message": "No space left on device"}')


def _stand(folder: Path) -> None:
    _ = grid.standing(_UNFINISHED, folder).remark


def _method() -> Any:
    torch.manual_seed(0)
    return methods.VolMinNet(networks.mlp(2, 2, (3,)), 2)


def _train(folder: Path, epochs: int = 2) -> None:
    x = torch.arange(12.0).view(6, 2)
    recipe = volmin.Recipe(epochs=2, batch_size=6)

    def stop(history: list[Any]) -> None:
        if len(history) == epochs:
            raise StopIteration

    volmin.fit(_method(), TensorLoader(x, torch.tensor(LABELS)), None, recipe, folder / "a.ckpt", on_epoch=stop)


def _checkpoint(folder: Path) -> None:
    try:
        _train(folder, epochs=1)
    except StopIteration:
        return


def _resume(folder: Path) -> None:
    try:
        _train(folder)
    except StopIteration:
        return
    except ArithmeticError as error:  # non-finite weights are detected as a diverged training
        raise ValueError(str(error)) from None


def _reseal_checkpoint(folder: Path) -> None:
    content = (folder / "a.ckpt").read_bytes().partition(b"\n")[2]
    write_sealed_bytes(folder / "a.ckpt", content)
    read_sealed_bytes(folder / "a.ckpt")


@cache
def _audited() -> dict[str, bytes]:
    generator = np.random.default_rng(0)
    probs = generator.dirichlet(np.full(3, 0.2), 90)
    labels = np.array(["a", "b", "c"])[probs.argmax(1)]
    with tempfile.TemporaryDirectory() as place:
        volmin.audit(labels, probs=probs, random_state=0).save(place)
        return {path.name: path.read_bytes() for path in Path(place).iterdir()}


def _audit_folder(folder: Path) -> None:
    for name in ("audit.json", "labels.parquet"):
        (folder / name).write_bytes(_audited()[name])


def _reseal_audit(folder: Path) -> None:
    try:
        content = json.loads((folder / "audit.json").read_text("utf-8"))
        content.pop("seal", None)
        write_sealed_json(folder / "audit.json", content, ["labels.parquet"])
    except (ValueError, AttributeError, TypeError, RecursionError):
        return


def _use_audit(folder: Path) -> None:
    volmin.Audit.load(folder).summary()


def _decisions(folder: Path) -> None:
    lines = ("row,given,suggested,probability_wrong,decision,label", "0,0,1,0.9,wrong,1", "3,1,0,0.8,right,", "")
    (folder / "d.csv").write_text("\n".join(lines))


def _npy(folder: Path, array: np.ndarray) -> None:
    np.save(folder / "a.npy", array)


def _gzip(content: bytes) -> bytes:
    return gzip.compress(content, mtime=0)


def _csv(folder: Path, suffix: str = ".csv", separator: str = ",") -> None:
    _table().write_csv(folder / f"a{suffix}", separator=separator)


_IMAGES = {".png": 1.0, ".jpg": 1.0, ".gif": 0.5, ".bmp": 0.5, ".tif": 0.5, ".webp": 0.5, ".ppm": 0.5}

READERS: dict[str, Reader] = {
    "IDX files": Reader(_idx, _read_idx, 20),
    "IDX files, gzipped": Reader(partial(_idx, pack=_gzip), _read_idx, 10),
    "CIFAR pickles, protocol 0": Reader(partial(_cifar, protocol=0), _read_cifar, 4),
    "CIFAR pickles, protocol 2": Reader(partial(_cifar, protocol=2), _read_cifar, 8),
    "CIFAR pickles, protocol 5": Reader(partial(_cifar, protocol=5), _read_cifar, 4),
    "CIFAR archives, tar": Reader(partial(_cifar_archive, mode=""), _read_cifar, 4),
    "CIFAR archives, gzip": Reader(partial(_cifar_archive, mode="gz"), _read_cifar, 4),
    "CIFAR archives, xz": Reader(partial(_cifar_archive, mode="xz"), _read_cifar, 2),
    "label files, npy": Reader(partial(_npy, array=LABELS), lambda f: read_labels(f / "a.npy"), 10),
    "label files, npz": Reader(_npz, lambda f: read_labels(f / "a.npz", "label"), 3),
    "label files, csv": Reader(_csv, lambda f: read_labels(f / "a.csv", "label"), 2),
    "label files, pt": Reader(_label_sets, _read_label_sets, 4),
    "probabilities, npy": Reader(partial(_npy, array=np.eye(4)), lambda f: read_array(f / "a.npy"), 5),
    "noise, npy": Reader(partial(_npy, array=np.eye(4)), lambda f: noise.parse(str(f / "a.npy"), 4), 5),
    "tables, csv": Reader(_csv, _encode, 3),
    "tables, tsv": Reader(partial(_csv, suffix=".tsv", separator="\t"), _encode, 1),
    "tables, parquet": Reader(lambda f: _table().write_parquet(f / "a.parquet"), _encode, 3),
    "tables, npz": Reader(_npz, _encode, 3),
    "decisions, csv": Reader(_decisions, lambda f: apply_decisions(LABELS, f / "d.csv"), 2),
    **{f"images, {s[1:]}": Reader(partial(_images, suffix=s), load_images, share) for s, share in _IMAGES.items()},
    "lists of Clothing1M": Reader(_clothing, clothing1m.load, 3, tuple(clothing1m._LISTS)),
    "run folders": Reader(_run_folder, _use_run, 1.5, repack=_reseal),
    "run folders as records": Reader(_run_folder, _use_records, 2, repack=_reseal),
    "records, jsonl": Reader(_records, _use_records, 2),
    "unfinished run folders": Reader(_unfinished, _stand, 2),
    "checkpoints": Reader(_checkpoint, _resume, 2, ("a.ckpt",), repack=_reseal_checkpoint),
    "audit folders": Reader(_audit_folder, _use_audit, 2, repack=_reseal_audit),
}
