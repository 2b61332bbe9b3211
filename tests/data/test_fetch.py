"""Lookup of public data sets, and verification of every file by its digest."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import numpy as np
import pytest
from data.stand_ins import Server, SmallMnist

from softspin.data import load, optional
from softspin.data.checksums import digest
from softspin.data.sources import PUBLIC_SETS, KnownFile, omniglot_set
from softspin.errors import DataError, MissingExtraError
from softspin.files import cache_folder

NOWHERE = "http://127.0.0.1:9"  # a port where nothing listens


@pytest.fixture(autouse=True)
def _small(small_mnist: SmallMnist, monkeypatch: pytest.MonkeyPatch) -> None:
    small_mnist.install(monkeypatch, NOWHERE)


def test_packed_and_text_form_are_the_same_set(small_mnist: SmallMnist, tmp_path: Path) -> None:
    small_mnist.write_compact(tmp_path / "packed")
    small_mnist.write_texts(tmp_path / "texts")
    packed, texts = load("mnist", folder=tmp_path / "packed"), load("mnist", folder=str(tmp_path / "texts"))
    assert packed.fingerprint == texts.fingerprint
    for part, table in small_mnist.tables.items():
        assert np.array_equal(getattr(packed, part).numpy(), table)


def test_order_explicit_folder_then_variable_then_cache(
    small_mnist: SmallMnist, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    small_mnist.write_compact(good)
    small_mnist.write_compact(bad).write_bytes(b"a file that makes itself heard")
    # The cache is used when the variable is unset, empty, or names a folder without the data set.
    small_mnist.write_compact(cache)
    for value in (None, "", str(tmp_path / "absent")):
        if value is not None:
            monkeypatch.setenv("SOFTSPIN_DATA", value)
        assert load("mnist", download=False).name == "mnist"
    # The variable comes before the cache ...
    monkeypatch.setenv("SOFTSPIN_DATA", str(bad))
    with pytest.raises(DataError, match=re.escape(str(bad))):
        load("mnist", download=False)
    # ... and the explicit folder before the variable.
    assert load("mnist", folder=good, download=False).name == "mnist"
    monkeypatch.setenv("SOFTSPIN_DATA", str(good))
    small_mnist.write_compact(cache).write_bytes(b"corrupt")
    assert load("mnist", download=False).name == "mnist"


def test_only_an_explicit_folder_is_searched(
    small_mnist: SmallMnist, tmp_path: Path, cache: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_mnist.serve(server)
    small_mnist.install(monkeypatch, server.address)
    small_mnist.write_compact(cache)
    text = rf"mnist is not in {re.escape(str(tmp_path))}; expected files: binarized_mnist.npz, or .*amat; download "
    with pytest.raises(DataError, match=rf"{text}binarized_mnist_train.amat, .* from {server.address} to "):
        load("mnist", folder=tmp_path)
    with pytest.raises(DataError, match=r"mnist is not in .*none \(there is no such folder\)"):
        load("mnist", folder=tmp_path / "none")
    assert server.asked == []


def test_two_of_three_text_files_are_not_enough(small_mnist: SmallMnist, tmp_path: Path) -> None:
    small_mnist.write_texts(tmp_path)
    (tmp_path / "binarized_mnist_valid.amat").unlink()
    with pytest.raises(DataError, match="mnist is not in"):
        load("mnist", folder=tmp_path)


def test_without_download_the_error_names_the_folders_and_the_files(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOFTSPIN_DATA", str(tmp_path / "mine"))
    with pytest.raises(DataError) as caught:
        load("mnist", download=False)
    text = str(caught.value)
    assert text.startswith(f"mnist is not in {tmp_path / 'mine'} or {cache}, and downloading is off; download ")
    for part in ("train", "valid", "test"):
        assert text.count(f"binarized_mnist_{part}.amat") == 1
    assert text.endswith(f" from {NOWHERE} to {cache}")
    assert "\n" not in text
    assert not cache.exists()


def test_cache_folder_follows_the_specification(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOFTSPIN_CACHE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "elsewhere"))
    assert cache_folder() == tmp_path / "elsewhere" / "softspin"
    for ignored in ("", "relative/path"):
        monkeypatch.setenv("XDG_CACHE_HOME", ignored)
        assert cache_folder() == tmp_path / ".cache" / "softspin"


def test_the_error_for_a_changed_packed_file_has_both_digests(small_mnist: SmallMnist, tmp_path: Path) -> None:
    path = small_mnist.write_compact(tmp_path)
    packed = {part: np.packbits(table, axis=1) for part, table in small_mnist.tables.items()}
    packed["valid"][3, 7] ^= 1  # one pixel, in an otherwise valid file
    np.savez(path, **packed)  # type: ignore[arg-type]
    found = hashlib.sha256(b"".join(table.tobytes() for table in packed.values())).hexdigest()
    text = f"checksum mismatch: the pixels of {path} should have sha256 {small_mnist.pixels_sha256}, found {found}"
    with pytest.raises(DataError, match=re.escape(text)):
        load("mnist", folder=tmp_path)


@pytest.mark.parametrize("damage", ["cut", "flip", "other"])
def test_an_unreadable_packed_file_is_an_error(damage: str, small_mnist: SmallMnist, tmp_path: Path) -> None:
    path = small_mnist.write_compact(tmp_path)
    content = path.read_bytes()
    flipped = content[:500] + bytes([content[500] ^ 1]) + content[501:]
    path.write_bytes({"cut": content[:1000], "flip": flipped, "other": b"<html>not found</html>"}[damage])
    text = rf"cannot read train, valid, test from .*npz: .*; its pixels should have sha256 {small_mnist.pixels_sha256}"
    with pytest.raises(DataError, match=text + "; delete the file and load again"):
        load("mnist", folder=tmp_path)


def test_the_error_for_a_changed_text_file_has_both_digests(small_mnist: SmallMnist, tmp_path: Path) -> None:
    small_mnist.write_texts(tmp_path)
    name = "binarized_mnist_test.amat"
    good = small_mnist.texts[name]
    wrong = good[:-2] + bytes([good[-2] ^ 1]) + good[-1:]
    (tmp_path / name).write_bytes(wrong)
    sha = [hashlib.sha256(text).hexdigest() for text in (good, wrong)]
    text = f"{name} should have sha256 {sha[0]}, found {sha[1]} in 31,360 bytes; delete {tmp_path / name}"
    with pytest.raises(DataError, match=re.escape(text)):
        load("mnist", folder=tmp_path)


def test_digests(tmp_path: Path) -> None:
    path = tmp_path / "greeting"
    path.write_bytes(b"hello\n")
    assert digest(path, "git-blob") == "ce013625030ba8dba906f756967f9e9ca394464a"  # git hash-object
    assert digest(path, "md5") == "b1946ac92492d2347c6235b4d2611184"
    assert digest(path, "sha256") == "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03"


# The original OMNIGLOT file, replaced by upright random images in MATLAB's column-major order.


def write_chardata(folder: Path) -> tuple[np.ndarray, np.ndarray, Path]:
    from scipy.io import savemat

    random = np.random.default_rng(9)
    train, test = random.random((1400, 28, 28)), random.random((6, 28, 28))
    columns = [np.stack([image.ravel(order="F") for image in part], axis=1) for part in (train, test)]
    path = folder / "chardata.mat"
    savemat(path, {"data": columns[0], "testdata": columns[1]})
    return train, test, path


def install_omniglot(monkeypatch: pytest.MonkeyPatch, address: str = NOWHERE, **digests: str) -> None:
    kinds = {kind.replace("_", "-"): value for kind, value in digests.items()}
    original = KnownFile("chardata.mat", kinds, (f"{address}/chardata.mat",))
    rebuilt = PUBLIC_SETS["omniglot"].copies[1].files[0]
    monkeypatch.setitem(PUBLIC_SETS, "omniglot", omniglot_set(original, rebuilt))


def test_chardata_is_turned_upright_and_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train, test, path = write_chardata(tmp_path)
    (tmp_path / "omniglot.npz").write_bytes(b"not read: the original is preferred")
    install_omniglot(monkeypatch, md5=digest(path, "md5"), git_blob=digest(path, "git-blob"))
    data = load("omniglot", folder=tmp_path)
    assert data.source == "OMNIGLOT (original chardata.mat)"
    assert data.shape == (28, 28)
    assert np.array_equal(data.train.numpy(), train[:55].reshape(55, 784).astype(np.float32))
    assert (len(data.valid), len(data.test)) == (1345, 6)
    # Correlation of bits with the right grey levels: 1/sqrt(3) = 0.577 for uniform levels, 0 for other images.
    for bits, levels in ((data.valid, train[55:]), (data.test, test)):
        assert np.corrcoef(bits.numpy().ravel(), levels.ravel())[0, 1] > 0.5
    assert data.fingerprint == load("omniglot", folder=tmp_path).fingerprint


def test_chardata_must_have_both_digests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, path = write_chardata(tmp_path)
    md5, blob = digest(path, "md5"), digest(path, "git-blob")
    for kinds, text in (
        ({"md5": "0" * 32, "git_blob": blob}, f"should have md5 {'0' * 32}, found {md5}"),
        ({"md5": md5, "git_blob": "0" * 40}, f"should have git-blob {'0' * 40}, found {blob}"),
    ):
        install_omniglot(monkeypatch, **kinds)
        with pytest.raises(DataError, match=text):
            load("omniglot", folder=tmp_path)


def test_a_mat_file_without_the_images_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from scipy.io import savemat

    path = tmp_path / "chardata.mat"
    savemat(path, {"other": np.zeros((2, 2))})
    install_omniglot(monkeypatch, md5=digest(path, "md5"))
    with pytest.raises(DataError, match=r"cannot read data and testdata from .*chardata.mat: 'data'"):
        load("omniglot", folder=tmp_path)


def test_without_scipy_nothing_is_downloaded(server: Server, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    install_omniglot(monkeypatch, server.address)
    monkeypatch.setattr(optional, "find_spec", lambda package: None)
    with pytest.raises(MissingExtraError, match=r"chardata.mat needs the package scipy; in a clone .*mat\]'$"):
        load("omniglot")
    assert server.asked == []
    assert not cache.exists()


def test_a_downloaded_chardata_goes_to_the_cache_unchanged(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    _, _, path = write_chardata(tmp_path)
    server.content["/chardata.mat"] = path.read_bytes()
    install_omniglot(monkeypatch, server.address, git_blob=digest(path, "git-blob"))
    assert load("omniglot").fingerprint == load("omniglot", folder=tmp_path).fingerprint
    assert [entry.name for entry in cache.iterdir()] == ["chardata.mat"]
