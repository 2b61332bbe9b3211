"""The Hub without a network: uploads go to a folder in the layout of the client's cache, downloads come from it."""

from __future__ import annotations

import hashlib
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from sharing.shared import trained

from softspin.errors import ConfigError, MissingExtraError, SharingError
from softspin.project import install_hint
from softspin.trained import Model

huggingface_hub = pytest.importorskip("huggingface_hub")


class LocalHub:
    """Repositories as folders in the layout of the client's cache: refs/main has a commit id, snapshots its files."""

    def __init__(self, cache: Path) -> None:
        self.cache, self.calls = cache, list[tuple[str, dict[str, Any]]]()

    def __call__(self, token: str | None = None) -> LocalHub:
        self.calls.append(("HfApi", {"token": token}))
        return self

    def create_repo(self, repo_id: str, **options: Any) -> Any:
        self.calls.append(("create_repo", {"repo_id": repo_id, **options}))
        return huggingface_hub.RepoUrl(f"https://huggingface.co/{repo_id}")

    def upload_folder(self, *, repo_id: str, folder_path: Path, commit_message: str) -> None:
        self.calls.append(("upload_folder", {"files": sorted(path.name for path in folder_path.iterdir())}))
        commit = hashlib.sha1(f"{commit_message} {len(self.calls)}".encode()).hexdigest()
        repo = self.cache / f"models--{repo_id.replace('/', '--')}"
        shutil.copytree(folder_path, repo / "snapshots" / commit)
        (repo / "refs").mkdir(exist_ok=True)
        (repo / "refs" / "main").write_text(commit)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalHub:
    local = LocalHub(tmp_path / "cache")
    monkeypatch.setattr(huggingface_hub, "HfApi", local)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(local.cache))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.chdir(tmp_path)
    return local


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return trained(tmp_path_factory.mktemp("hub") / "run", seeds=(0, 1))


def test_upload_and_download(made: Model, hub: LocalHub) -> None:
    assert made.push_to_hub("me/stripes", private=True, token="t", license="mit") == "https://huggingface.co/me/stripes"
    assert hub.calls == [
        ("HfApi", {"token": "t"}),
        ("create_repo", {"repo_id": "me/stripes", "private": True, "exist_ok": True}),
        ("upload_folder", {"files": ["README.md", "config.json", "model.safetensors"]}),
    ]
    again = Model.from_pretrained("me/stripes", device="cpu")
    assert torch.equal(again.sample(4, seed=0), made.sample(4, seed=0))
    assert again.metadata is not None
    assert again.metadata.license == "mit"
    first = next((hub.cache / "models--me--stripes" / "snapshots").iterdir()).name
    made.only(0).push_to_hub("me/stripes")
    assert Model.from_pretrained("me/stripes").net.replicas == 1
    assert Model.from_pretrained("me/stripes", revision=first).net.replicas == 2


def test_local_paths_need_no_hub(made: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    monkeypatch.chdir(tmp_path)
    made.save("me/stripes")
    assert made.folder is not None
    for place in ("me/stripes", Path("me/stripes/model.safetensors"), made.folder):
        assert Model.from_pretrained(place).net.replicas == 2
    with pytest.raises(ConfigError, match="me/stripes is a local path and has no revision 'main'"):
        Model.from_pretrained("me/stripes", revision="main")


def test_a_missing_extra_is_an_error(made: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    monkeypatch.chdir(tmp_path)
    for call in (lambda: made.push_to_hub("me/x"), lambda: Model.from_pretrained("me/x")):
        with pytest.raises(MissingExtraError, match=re.escape(install_hint("hub"))):
            call()


def test_errors_of_the_hub_are_one_line(made: Model, hub: LocalHub, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SharingError, match="'me/nothing' is not a local path and could not be downloaded") as raised:
        Model.from_pretrained("me/nothing")
    assert "\n" not in str(raised.value)
    for name in ("./me/x", "/me/x", "a/b/c", "../x", "x.safetensors", "", "me/"):
        with pytest.raises(SharingError, match="a model of the Hugging Face Hub is named OWNER/NAME"):
            Model.from_pretrained(name) if name else made.push_to_hub(name)

    def forbidden(*_: object, **__: object) -> None:
        raise OSError("403 Forbidden\nmore")

    monkeypatch.setattr(hub, "upload_folder", forbidden)
    with pytest.raises(SharingError, match=r"'me/x' could not be uploaded to the Hugging Face Hub: 403 Forbidden$"):
        made.push_to_hub("me/x")
