"""A damaged or full cache of compiled code is reported once and never stops a kernel, nor changes what it computes."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import pickle
import random
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

numba = pytest.importorskip("numba")

from numba import types  # noqa: E402
from numba.core import config  # noqa: E402

from softspin.kernels import cpu_cache  # noqa: E402
from softspin.kernels.cpu_cache import CheckedFiles, compile_cached  # noqa: E402


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path))
    cpu_cache._warn.cache_clear()
    return tmp_path


def double(x: int) -> int:
    return 2 * x


def result(said: list[str]) -> tuple[int, int]:
    """What the compiled function makes of 21, and how often it came from the cache; texts of warnings are added."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        compiled = compile_cached(types.int64(types.int64), double)
    said += [str(one.message) for one in caught]
    return ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(compiled.address)(21), compiled.cache_hits


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*.nb*"))


def test_compiled_code_is_found_again(folder: Path) -> None:
    said: list[str] = []
    assert [result(said), result(said)] == [(42, 0), (42, 1)]
    assert said == []
    assert [path.suffix for path in files(folder)] == [".nbc", ".nbi"]


@pytest.mark.parametrize("suffix", [".nbc", ".nbi"])
@pytest.mark.parametrize("kind", ["empty", "half", "text", "start", "bits"])
def test_a_damaged_file_is_compiled_again(suffix: str, kind: str, folder: Path) -> None:
    said: list[str] = []
    result(said)
    (path,) = (path for path in files(folder) if path.suffix == suffix)
    content = bytearray(path.read_bytes())
    if kind == "bits":
        rng = random.Random(0)
        for at in rng.sample(range(40, len(content)), 20):
            content[at] ^= 1 << rng.randrange(8)
    new = {
        "empty": b"",
        "half": bytes(content[: len(content) // 2]),
        "text": b"no code\n",
        "start": b"\0" + bytes(content),
    }
    path.write_bytes(new.get(kind, bytes(content)))
    assert result(said) == (42, 0)
    assert result(said) == (42, 1), "rebuilt"
    (line,) = said
    assert "is damaged" in line
    assert line.endswith("and is compiled again")


def test_machine_code_that_changed_is_never_run(folder: Path) -> None:
    """It could still be unpickled, and would compute something else or crash."""
    said: list[str] = []
    result(said)
    (path,) = (path for path in files(folder) if path.suffix == ".nbc")
    content = bytearray(path.read_bytes())
    content[content.index(b"\x7fELF") + 100] ^= 1
    pickle.loads(content[cpu_cache.DIGEST_BYTES :])
    path.write_bytes(content)
    assert result(said) == (42, 0)
    (line,) = said
    assert "is damaged (ValueError: it does not have the SHA-256 that was written)" in line


@pytest.mark.parametrize("damaged", [False, True])
def test_a_full_disk_does_without_the_cache(damaged: bool, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    if damaged:
        result(said)
        for path in files(folder):
            path.write_bytes(b"")

    @contextlib.contextmanager
    def full(*_: object) -> Iterator[None]:
        raise OSError(errno.ENOSPC, "No space left on device")
        yield

    monkeypatch.setattr(CheckedFiles, "_open_for_write", full)
    assert [result(said), result(said)] == [(42, 0), (42, 0)]
    assert said[-1].endswith("(No space left on device); each process compiles it")
    assert len(said) == 1 + damaged, "each is said once"


def test_no_writable_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> None:
        raise RuntimeError("cannot cache function: no locator available")

    monkeypatch.setattr(cpu_cache, "CheckedCache", none)
    said: list[str] = []
    assert (result(said), said) == ((42, 0), [])
