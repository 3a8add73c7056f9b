"""What was derived from pictures, kept on the disk under the hash of what it was derived from.

An entry is a folder named by its key: files, and a `meta.json` written last with a checksum of each. A damaged entry is
thrown away and made again; a full or read-only disk only means that nothing is kept. Of several processes that want the
same entry one makes it, the others wait. The least recently used entries go when the whole grows beyond its limit.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import shutil
import tempfile
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vitscope.core.environment import cache_root
from vitscope.core.files import write_json

LIMIT_BYTES = 50 * 10**9
"""Beyond this the oldest entries go."""
META = "meta.json"
LEFT_BEHIND_S = 24 * 3600
"""A hidden folder this old belongs to a writer that was killed."""
_CHUNK = 1 << 22
_log = logging.getLogger("vitscope")


def key_of(*parts: object) -> str:
    """One name for all that an entry depends on."""
    return hashlib.blake2b("\0".join(map(str, parts)).encode(errors="surrogatepass"), digest_size=16).hexdigest()


def hash_of_files(paths: Sequence[Path], *, salt: str = "") -> str:
    """Of names and contents."""
    digest = hashlib.blake2b(salt.encode(), digest_size=16)
    for path in paths:
        content = hashlib.blake2b(digest_size=16)
        for chunk in _chunks(path):
            content.update(chunk)
        digest.update(b"\0" + os.fsencode(path.name) + b"\0" + content.digest())
    return digest.hexdigest()


def find(kind: str, key: str) -> tuple[Path, dict[str, Any]] | None:
    """An entry's folder and meta data, if it is there and whole."""
    folder = cache_root() / kind / key
    if not folder.is_dir():
        return None
    meta: dict[str, Any] = {}
    try:
        meta = json.loads((folder / META).read_text(encoding="utf-8"))
        whole = all(_crc32(folder / name) == crc for name, crc in meta["crc32"].items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        whole = False
    if not whole:
        _log.warning("the cache entry %s is damaged and is made again", folder)
        shutil.rmtree(folder, ignore_errors=True)
        return None
    with contextlib.suppress(OSError):
        os.utime(folder / META)  # used now
    return folder, meta


@contextmanager
def making(kind: str, key: str) -> Iterator[None]:
    """One process at a time looks for an entry and makes it; where no lock is to be had, all of them."""
    try:
        import fcntl

        home = cache_root() / kind
        home.mkdir(parents=True, exist_ok=True)
        lock = (home / f".{key}.lock").open("w")
    except (ImportError, OSError):
        yield
        return
    with lock:
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


class Writing:
    """An entry while it is made: write files into `folder`, then `finish`. Until then nobody sees it."""

    def __init__(self, kind: str, key: str) -> None:
        self.home = cache_root() / kind
        self.key = key
        self.home.mkdir(parents=True, exist_ok=True)
        self.folder = Path(tempfile.mkdtemp(prefix=f".{key[:8]}-", dir=self.home))

    def finish(self, **about: Any) -> Path:
        """Make it visible, in one step. Another process may have been quicker: then its entry counts."""
        sums = {path.name: _crc32(path) for path in sorted(self.folder.iterdir())}
        write_json(self.folder / META, {**about, "crc32": sums})
        place = self.home / self.key
        try:
            self.folder.rename(place)
        except OSError:
            if not (place / META).is_file():
                raise
            self.abandon()
        _make_room(self.home.parent, spare=place)
        return place

    def abandon(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def say_not_kept(error: OSError) -> None:
    _log.warning("nothing is kept in the cache %s: %s", cache_root(), error)


def _make_room(root: Path, spare: Path) -> None:
    """What killed writers left goes; then the least recently used entries, until the rest fits."""
    for hidden in root.glob("*/.*"):
        with contextlib.suppress(OSError):
            if time.time() - hidden.stat().st_mtime > LEFT_BEHIND_S:
                shutil.rmtree(hidden) if hidden.is_dir() else hidden.unlink()
    entries = []
    for meta in root.glob(f"*/*/{META}"):
        with contextlib.suppress(OSError):
            size = sum(path.stat().st_size for path in meta.parent.iterdir())
            entries.append((meta.stat().st_mtime, size, meta.parent))
    total = sum(size for _, size, _ in entries)
    for _, size, folder in sorted(entries):
        if total <= LIMIT_BYTES:
            break
        if folder != spare:
            shutil.rmtree(folder, ignore_errors=True)
            total -= size


def _crc32(path: Path) -> int:
    """Ours alone writes entries, so what is asked is whether a disk has kept them: several times as fast as a hash."""
    found = 0
    for chunk in _chunks(path):
        found = zlib.crc32(chunk, found)
    return found


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        yield from iter(lambda: file.read(_CHUNK), b"")
