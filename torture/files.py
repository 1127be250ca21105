"""Mutated files: every reader of untrusted files gives a result or a clear error.

Valid files are mutated in memory: bits are flipped, ends cut off, pieces moved, lengths replaced and JSON values
exchanged, also inside compressed files and behind valid checksums. They are then written and read. Each kind of file is
tried in its own process with limited memory and time, which detects excessive allocation and endless loops.
"""

from __future__ import annotations

import bz2
import copy
import gzip
import io
import json
import lzma
import random
import resource
import signal
import struct
import tempfile
import time
import warnings
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torture.outcome import Outcome
from torture.processes import ProcessDiedError, in_a_process

MEMORY = 2 << 30
"""Bytes that a reader may allocate beyond those of the imported packages."""
SECONDS = 10.0
"""Time limit of a reader for one small file."""

Content = dict[str, bytes]
"""Bytes of each file of a folder, by name."""
EXPECTED = (ValueError, OSError)
"""Errors that readers raise on purpose (``DataError`` is a ``ValueError``)."""

_NUMBERS = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 0x7FFFFFFFFFFFFFFF, 0xFFFFFFFFFFFFFFFF)
_VALUES: tuple[Any, ...] = (
    *(None, True, -1, 0, 1, 10**9, 10**30, 1e308, -0.5, "", "x", "../x", "\x00", [], [[]], {}, {"a": 1}),
    *([1, 2], ["a", None], [[1.0, 2.0], [3.0]], "NaN", [10**6, 10**6], 2**62),
)


class HangError(BaseException):
    """A reader exceeded its time limit."""


@dataclass(frozen=True)
class Reader:
    """How files of one kind are made and read."""

    make: Callable[[Path], None]
    """Writes valid files to a folder."""
    read: Callable[[Path], object]
    """Reads the files in the folder."""
    share: float
    """Relative number of files to try; larger for fast readers."""
    damaged: tuple[str, ...] = ()
    """Names of the files to mutate; all by default."""
    repack: Callable[[Path], None] | None = None
    """Recomputes checksums, so that the mutation is not detected by them."""


def mutated(content: bytes, generator: random.Random) -> bytes:
    """The same bytes with one to three mutations."""
    changed = bytearray(content)
    for _ in range(generator.choice((1, 1, 1, 2, 3))):
        changed = generator.choice(_MUTATIONS)(changed, generator)
    return bytes(changed)


def _flip(content: bytearray, generator: random.Random) -> bytearray:
    for _ in range(generator.choice((1, 1, 2, 8))):
        if content:
            content[generator.randrange(len(content))] ^= 1 << generator.randrange(8)
    return content


def _truncate(content: bytearray, generator: random.Random) -> bytearray:
    return content[: generator.randrange(len(content) + 1)]


def _splice(content: bytearray, generator: random.Random) -> bytearray:
    """Copy a piece of the file to another place, inserted or overwriting."""
    start, place = generator.randrange(len(content) + 1), generator.randrange(len(content) + 1)
    piece = content[start : start + generator.randrange(1, 65)]
    end = place + (len(piece) if generator.random() < 0.5 else 0)
    return content[:place] + piece + content[end:]


def _delete(content: bytearray, generator: random.Random) -> bytearray:
    start = generator.randrange(len(content) + 1)
    return content[:start] + content[start + generator.randrange(1, 65) :]


def _insert(content: bytearray, generator: random.Random) -> bytearray:
    place = generator.randrange(len(content) + 1)
    return content[:place] + bytearray(generator.randbytes(generator.randrange(1, 17))) + content[place:]


def _number(content: bytearray, generator: random.Random) -> bytearray:
    """Overwrite bytes by an extreme number; near the beginning or the end of a file they are often a length."""
    width = generator.choice("BHIQ")
    size = struct.calcsize(width)
    if len(content) < size:
        return content
    reach = min(len(content) - size, generator.choice((16, 128, len(content))))
    place = generator.randint(0, reach)
    if generator.random() < 0.3:
        place = len(content) - size - place
    value = generator.choice(_NUMBERS) & (256**size - 1)
    struct.pack_into(generator.choice("<>") + width, content, place, value)
    return content


def _digits(content: bytearray, generator: random.Random) -> bytearray:
    """Replace a run of digits by an extreme number, such as a length or a shape in text."""
    places = [place for place, byte in enumerate(content) if 48 <= byte <= 57]
    if not places:
        return content
    start = end = generator.choice(places)
    while end < len(content) and 48 <= content[end] <= 57:
        end += 1
    number = generator.choice((0, 1, 9, 255, 65536, 2**31, 2**63, 10**18, 10**40))
    return content[:start] + str(number).encode() + content[end:]


_MUTATIONS = (_flip, _flip, _truncate, _splice, _delete, _insert, _number, _number, _digits)


def mutated_json(text: bytes, generator: random.Random) -> bytes:
    """A JSON text with one value exchanged or deleted, one name changed, or extreme nesting."""
    try:
        content = json.loads(text)
    except ValueError:
        return mutated(text, generator)
    if generator.random() < 0.02:
        return b"[" * 100_000
    places = list(_places(content))
    if not places:
        return json.dumps(generator.choice(_VALUES)).encode()
    holder, key = generator.choice(places)
    if isinstance(holder, dict) and generator.random() < 0.2:
        holder[f"{key}x"] = holder.pop(key)
    elif generator.random() < 0.15:
        del holder[key]
    else:
        holder[key] = copy.deepcopy(generator.choice(_VALUES))
    return json.dumps(content).encode()


def _places(content: Any) -> Iterator[tuple[Any, Any]]:
    items = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, value in list(items):
        yield content, key
        yield from _places(value)


def mutated_inside(content: bytes, generator: random.Random) -> bytes:
    """Mutate the content of a compressed file and compress it again, with valid checksums."""
    if content[:2] == b"\x1f\x8b":
        return gzip.compress(mutated(gzip.decompress(content), generator), 1, mtime=0)
    if content[:6] == b"\xfd7zXZ\x00":
        return lzma.compress(mutated(lzma.decompress(content), generator), preset=0)
    if content[:3] == b"BZh":
        return bz2.compress(mutated(bz2.decompress(content), generator), 1)
    if content[:4] == b"PK\x03\x04":
        return _mutated_zip(content, generator)
    return mutated(content, generator)


def _mutated_zip(content: bytes, generator: random.Random) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as archive, zipfile.ZipFile(out, "w") as changed:
        names = archive.namelist()
        chosen = generator.choice(names)
        for name in names:
            inner = archive.read(name)
            changed.writestr(name, mutated(inner, generator) if name == chosen else inner)
    return out.getvalue()


def attempt(reader: Reader, valid: Content, folder: Path, generator: random.Random) -> str:
    """Write a valid folder with one file mutated; give the file and the kind of mutation, for the report."""
    name = generator.choice(sorted(reader.damaged or valid))
    for other, content in valid.items():
        (folder / other).write_bytes(content)
    if name.endswith((".json", ".jsonl")) and generator.random() < 0.7:
        changed, kind = mutated_json(valid[name], generator), "values"
    elif generator.random() < 0.4:
        changed, kind = mutated_inside(valid[name], generator), "inside"
    else:
        changed, kind = mutated(valid[name], generator), "bytes"
    (folder / name).write_bytes(changed)
    if reader.repack is not None and generator.random() < 0.7:
        reader.repack(folder)
    return f"{name}, {kind}"


def try_kind(kind: str, count: int, seed: int) -> dict[str, Any]:
    """Read ``count`` mutated files of one kind in this process."""
    warnings.simplefilter("ignore")
    from torture.formats import READERS

    reader, generator = READERS[kind], random.Random(f"{kind}-{seed}")
    tried = Outcome("files", kind)
    slowest = 0.0
    with tempfile.TemporaryDirectory() as root, tried.timed():
        pristine, folder = Path(root) / "valid", Path(root) / "read"
        pristine.mkdir()
        reader.make(pristine)
        reader.read(pristine)  # must succeed, and imports packages before memory is measured
        valid = {str(path.relative_to(pristine)): path.read_bytes() for path in pristine.rglob("*") if path.is_file()}
        for name in valid:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
        with _limited_memory():
            for _ in range(count):
                mutation = attempt(reader, valid, folder, generator)
                start = time.perf_counter()
                try:
                    with _limited_time():
                        reader.read(folder)
                    tried.count("right")
                except EXPECTED as error:
                    tried.count(
                        "refused" if str(error) else "failed", f"{mutation}: {type(error).__name__} without a message"
                    )
                except BaseException as error:  # extension modules may raise a BaseException
                    tried.count("failed", f"{mutation}: {type(error).__name__}: {str(error)[:120]}")
                slowest = max(slowest, time.perf_counter() - start)
    tried.figures = {"slowest_seconds": round(slowest, 2)}
    return vars(tried)


@contextmanager
def _limited_memory() -> Iterator[None]:
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (now + MEMORY, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@contextmanager
def _limited_time() -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise HangError(f"not finished after {SECONDS:g} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def run(count: int, seed: int = 0, jobs: int = 2, kinds: tuple[str, ...] = ()) -> list[Outcome]:
    """Read about ``count`` mutated files of all kinds, each kind in its own process."""
    from torture.formats import READERS

    chosen = kinds or tuple(READERS)
    total = sum(READERS[kind].share for kind in chosen)
    counts = {kind: max(1, round(count * READERS[kind].share / total)) for kind in chosen}
    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(lambda kind: _in_a_process(kind, counts[kind], seed), chosen))


def _in_a_process(kind: str, count: int, seed: int) -> Outcome:
    try:
        return Outcome(**in_a_process(try_kind, kind, count, seed, seconds=300 + count))
    except ProcessDiedError as error:
        return Outcome("files", kind, tried=1, failures=[str(error)])
