"""The Hugging Face Hub: send a shared folder there, fetch a model's file from there. An extra."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from softspin import __version__
from softspin.errors import MissingExtraError, SharingError
from softspin.sharing.files import TENSORS


def hub() -> ModuleType:
    """The Hub's own client."""
    try:
        import huggingface_hub
    except ImportError:
        raise MissingExtraError(
            "the Hugging Face Hub needs huggingface_hub; install it with: pip install 'softspin[hub]'"
        ) from None
    return huggingface_hub


def push(repo_id: str, write: Callable[[Path], object], *, private: bool | None, token: str | None) -> str:
    """Upload what `write` puts into a folder to a model repository, made if missing; its address."""
    client = hub().HfApi(token=token)
    check_name(repo_id)
    with tempfile.TemporaryDirectory() as name:
        write(Path(name))
        return _upload(client, repo_id, Path(name), private)


def _upload(client: Any, repo_id: str, folder: Path, private: bool | None) -> str:
    try:
        made = client.create_repo(repo_id, private=private, exist_ok=True)
        client.upload_folder(repo_id=made.repo_id, folder_path=folder, commit_message=f"By softspin {__version__}")
    except Exception as error:  # the client has some forty kinds, and none is this program's fault
        raise SharingError(f"'{repo_id}' could not be sent to the Hugging Face Hub: {_first(error)}") from error
    return str(made)


def fetch(repo_id: str, *, revision: str | None, token: str | None) -> Path:
    """The model's file, from the Hub or from its cache on this machine; no other file is fetched."""
    client = hub()
    check_name(repo_id)
    try:
        return Path(client.hf_hub_download(repo_id, TENSORS, revision=revision, token=token))
    except Exception as error:
        raise SharingError(
            f"'{repo_id}' is neither here nor could it be fetched from the Hugging Face Hub: {_first(error)}"
        ) from error


def check_name(repo_id: str) -> None:
    """Raise for what can only be a path on this machine."""
    if not re.fullmatch(r"(\w[\w.-]*/)?\w[\w.-]*", repo_id) or repo_id.endswith(".safetensors"):
        raise SharingError(f"there is no '{repo_id}' here, and a model of the Hugging Face Hub is named OWNER/NAME")


def _first(error: Exception) -> str:
    """The line of its message that says most, the first."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
