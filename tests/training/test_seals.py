"""`run.json` and `result.json` are what training wrote, or reading them is an error in one line that names the file."""

from __future__ import annotations

import copy
import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fixtures.stored import V1, V2
from training.runs import small, trainer
from unsealed import unseal

import softspin
from softspin.errors import RunError
from softspin.seals import sealed
from softspin.training.run_files import read_result, read_run

READERS: dict[str, Callable[[Path], Any]] = {"run.json": read_run, "result.json": read_result}
WRONG: tuple[Any, ...] = (None, -1, 1.5, "[/x]", [], {"a": 1}, True, 10**400, [[None]], "\ud800", float("nan"))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("seals") / "run"
    trainer(small(steps=2, seeds=(0, 1)), folder).train()
    return folder


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    for name in READERS:
        shutil.copy(trained / name, tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", READERS)
def test_no_flipped_bit_changes_a_value_silently(name: str, run: Path) -> None:
    path, read = run / name, READERS[name]
    written, before = path.read_bytes(), read(run)
    rng, errors = random.Random(0), 0
    for at in range(0, len(written), 7):
        changed = bytearray(written)
        changed[at] ^= 1 << rng.randrange(8)
        path.write_bytes(changed)
        found, message = _try(read, run)
        assert found == before if message is None else message.startswith(str(path)), at
        errors += message is not None
    assert errors > len(written) / 14  # flips in spaces are harmless, or not JSON


@pytest.mark.parametrize("name", READERS)
def test_a_flipped_bit_in_the_name_of_the_seal_does_not_remove_it(name: str, trained: Path, tmp_path: Path) -> None:
    path, written = tmp_path / name, (trained / name).read_bytes()
    if name == "result.json":  # of one replica, so that no other row has a seal
        row = {key: value for key, value in json.loads(written)[0].items() if key != "seal"}
        written = json.dumps(sealed([row]), indent=1).encode()
    path.write_bytes(written)
    READERS[name](tmp_path)
    at = written.index(b'"seal"') + 1
    for bit in range(8 * len("seal")):
        changed = bytearray(written)
        changed[at + bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        with pytest.raises(RunError, match=name):
            READERS[name](tmp_path)


@pytest.mark.parametrize("name", READERS)
def test_a_changed_number_is_an_error(name: str, run: Path) -> None:
    path, old, new = run / name, '"steps": 2', '"steps": 3'
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(RunError, match=rf"{name} was changed.*: it does not have the SHA-256 of its 'seal'"):
        READERS[name](run)


def test_a_missing_row_is_an_error(run: Path) -> None:
    path = run / "result.json"
    path.write_text(json.dumps(json.loads(path.read_text())[1:]))
    with pytest.raises(RunError, match=r"result\.json was changed"):
        read_result(run)


@pytest.mark.parametrize("stored", [V1, V2])
@pytest.mark.parametrize("name", READERS)
def test_files_without_seals_still_load(stored: Any, name: str) -> None:
    folder = stored.folder / "finished"
    assert "seal" not in (folder / name).read_text()
    assert READERS[name](folder)


@pytest.mark.parametrize("with_seal", [False, True])
def test_a_missing_key_is_an_error_and_never_a_default(with_seal: bool, run: Path) -> None:
    unseal(run / "run.json")
    about = json.loads((run / "run.json").read_text())
    assert read_run(run).read_config().steps == 2
    for keys in _paths(about):
        added = {("data", name) for name in ("condition", "columns", "class_names")} | {("init_from",)}
        if keys == () or keys in added:  # added later; None is what earlier versions did
            continue
        changed = copy.deepcopy(about)
        place = changed
        for key in keys[:-1]:
            place = place[key]
        if not isinstance(place, dict):
            continue
        del place[keys[-1]]
        (run / "run.json").write_text(json.dumps(sealed([changed])[0] if with_seal else changed))
        with pytest.raises(RunError, match=rf"run\.json has no '{'.'.join(map(str, keys))}'"):
            read_run(run)


def test_an_empty_shape_is_an_error(run: Path) -> None:
    about = json.loads(unseal(run / "run.json").read_text())
    about["data"]["shape"] = []
    (run / "run.json").write_text(json.dumps(about))
    with pytest.raises(RunError, match=r"run\.json has an empty 'data\.shape'"):
        read_run(run)


@pytest.mark.parametrize("stored", [V1, V2])
def test_a_missing_setting_of_an_older_version_is_an_error(stored: Any, tmp_path: Path) -> None:
    about = json.loads((stored.folder / "finished" / "run.json").read_text())
    del about["config"]["weight_decay"]
    (tmp_path / "run.json").write_text(json.dumps(about))
    with pytest.raises(RunError, match=r"run\.json has no 'config\.weight_decay'"):
        read_run(tmp_path)


@pytest.mark.parametrize("name", READERS)
def test_wrong_types_are_errors_in_one_line(name: str, run: Path) -> None:
    unseal(run / name)
    values = json.loads((run / name).read_text())
    for keys in _paths(values):
        for wrong in WRONG:
            (run / name).write_text(json.dumps(_with(values, keys, wrong)))
            _try(READERS[name], run)  # None, and texts of data, are also right in some places


def test_a_model_with_a_changed_result_loads_without_it_and_says_so(trained: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(trained, tmp_path / "run"))
    path = folder / "result.json"
    path.write_text(path.read_text().replace('"steps": 2', '"steps": 3'))
    with pytest.warns(UserWarning, match=r"the model is loaded without its result: .*result\.json was changed"):
        assert softspin.load(folder).result is None


def _try(read: Callable[[Path], Any], folder: Path) -> tuple[Any, str | None]:
    """What is read, or the error in one line."""
    try:
        return read(folder), None
    except RunError as error:
        (line,) = str(error).splitlines()
        return None, line


def _paths(value: Any, keys: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where plain data have values; of lists only the first."""
    yield keys
    items = value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    for key, one in items:
        yield from _paths(one, (*keys, key))


def _with(value: Any, keys: tuple[Any, ...], new: Any) -> Any:
    if not keys:
        return new
    changed = copy.copy(value)
    changed[keys[0]] = _with(value[keys[0]], keys[1:], new)
    return changed
