"""Downloads from a local server: the cache gets the whole data set or nothing."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from data.stand_ins import Server, SmallMnist

from softspin.data import download as download_module
from softspin.data import load
from softspin.errors import DataError

TRAIN, VALID, TEST = (f"/binarized_mnist_{part}.amat" for part in ("train", "valid", "test"))


@pytest.fixture(autouse=True)
def _published(small_mnist: SmallMnist, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    small_mnist.serve(server)
    small_mnist.install(monkeypatch, server.address)


def assert_empty(cache: Path) -> None:
    assert list(cache.iterdir()) == []  # hidden files are listed too


def test_a_download_is_packed_into_the_cache_and_used_from_there(
    small_mnist: SmallMnist, server: Server, cache: Path
) -> None:
    data = load("mnist")
    for part, table in small_mnist.tables.items():
        assert np.array_equal(getattr(data, part).numpy(), table)
    assert server.asked == [TRAIN, VALID, TEST]
    assert [path.name for path in cache.iterdir()] == ["binarized_mnist.npz"]
    assert load("mnist", download=False).fingerprint == data.fingerprint
    assert load("mnist").fingerprint == data.fingerprint
    assert len(server.asked) == 3


def test_a_file_address_works_too(
    small_mnist: SmallMnist, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_mnist.write_texts(tmp_path / "published")
    small_mnist.install(monkeypatch, (tmp_path / "published").as_uri())
    assert load("mnist").name == "mnist"


@pytest.mark.parametrize("name", [TRAIN, TEST])
def test_a_truncated_download_leaves_nothing(name: str, server: Server, cache: Path) -> None:
    server.cut.add(name)
    text = rf"{name[1:]} failed: .*: checksum mismatch: .* found [0-9a-f]+ in [0-9,]+ bytes; .*truncated"
    with pytest.raises(DataError, match=text):
        load("mnist")
    assert_empty(cache)


def test_a_corrupt_download_leaves_nothing(small_mnist: SmallMnist, server: Server, cache: Path) -> None:
    server.content[VALID] = server.content[VALID].replace(b"0", b"1", 1)
    with pytest.raises(DataError, match=f"downloading {VALID[1:]} failed: .*checksum mismatch") as caught:
        load("mnist")
    assert "\n" not in str(caught.value)
    assert f"; download {TRAIN[1:]}, " in str(caught.value)
    assert str(caught.value).endswith(f" from {server.address} to {cache}")
    assert_empty(cache)
    small_mnist.serve(server)  # the failed attempt does not affect the next one
    assert load("mnist").name == "mnist"


def test_a_download_that_is_too_large_is_stopped(server: Server, cache: Path) -> None:
    server.content[TRAIN] += b"0" * 1_000_000
    with pytest.raises(DataError, match="more than the expected 47,040 bytes"):
        load("mnist")
    assert_empty(cache)


def test_errors_for_a_missing_page_and_a_missing_server(
    small_mnist: SmallMnist, server: Server, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del server.content[TRAIN]
    with pytest.raises(DataError, match=rf"mnist is not in {re.escape(str(cache))}, and .*HTTP Error 404"):
        load("mnist")
    assert_empty(cache)
    small_mnist.install(monkeypatch, "http://127.0.0.1:9")
    with pytest.raises(DataError, match=r"binarized_mnist_train.amat failed: 127.0.0.1:9: <urlopen error"):
        load("mnist")
    assert_empty(cache)


def test_the_second_address_is_tried_when_the_first_is_down_or_wrong(
    small_mnist: SmallMnist, server: Server, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_mnist.serve(server, "/mirror")
    small_mnist.install(monkeypatch, server.address, f"{server.address}/mirror")
    del server.content[TRAIN]
    server.content[VALID] = b"<html>please log in</html>"
    assert load("mnist").name == "mnist"
    assert server.asked == [TRAIN, f"/mirror{TRAIN}", VALID, f"/mirror{VALID}", TEST]
    assert [path.name for path in cache.iterdir()] == ["binarized_mnist.npz"]


@pytest.mark.parametrize("stop_at", [TRAIN, TEST])
def test_an_interrupted_download_leaves_nothing(stop_at: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen_in_cache: list[Path] = []

    @contextmanager
    def interrupt(label: str, total: int | None) -> Iterator[Callable[[int], None]]:
        def advance(count: int) -> None:
            if label == stop_at[1:]:
                seen_in_cache.extend(cache.rglob("*.amat"))
                raise KeyboardInterrupt

        yield advance

    monkeypatch.setattr(download_module, "_progress", interrupt)
    with pytest.raises(KeyboardInterrupt):
        load("mnist")
    assert seen_in_cache  # there were files that could have been left
    assert_empty(cache)


def test_a_move_that_fails_leaves_nothing(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(source: object, target: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(DataError, match="and no space left on device; download"):
        load("mnist")
    assert_empty(cache)


def test_a_cache_folder_that_cannot_be_created_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(DataError, match=r"mnist is not in .*, and \[Errno .*; download"):
        load("mnist")


def test_progress_is_shown_only_in_terminals(
    server: Server, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    load("mnist")
    assert capfd.readouterr() == ("", "")

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    (cache / "binarized_mnist.npz").unlink()
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    load("mnist")
    shown = terminal.getvalue()
    assert all(path[1:] in shown for path in (TRAIN, VALID, TEST))
    assert capfd.readouterr().out == ""
