"""Upload and download of shared models on the Hugging Face Hub (an optional extra)."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from softspin import __version__
from softspin.errors import SharingError, missing_extra
from softspin.sharing.files import TENSORS


def hub() -> ModuleType:
    """The package `huggingface_hub`; raises MissingExtraError if it is not installed."""
    try:
        import huggingface_hub
    except ImportError:
        raise missing_extra("the Hugging Face Hub needs the package huggingface_hub", "hub") from None
    return huggingface_hub


def push(repo_id: str, write: Callable[[Path], object], *, private: bool | None, token: str | None) -> str:
    """Upload a folder to a model repository.

    Args:
        repo_id: Repository, `owner/name`; created if missing.
        write: Writes the files to a folder.
        private: Whether a new repository is private; None for the default of the Hub.
        token: Access token; None for the stored one.

    Returns:
        The URL of the repository.

    Raises:
        SharingError: The name is invalid, or the upload fails.
        MissingExtraError: The package `huggingface_hub` is not installed.
    """
    client = hub().HfApi(token=token)
    check_name(repo_id)
    with tempfile.TemporaryDirectory() as name:
        write(Path(name))
        return _upload(client, repo_id, Path(name), private)


def _upload(client: Any, repo_id: str, folder: Path, private: bool | None) -> str:
    try:
        made = client.create_repo(repo_id, private=private, exist_ok=True)
        client.upload_folder(repo_id=made.repo_id, folder_path=folder, commit_message=f"By softspin {__version__}")
    except Exception as error:  # the client has about forty error types; none of them is a bug here
        raise SharingError(f"'{repo_id}' could not be uploaded to the Hugging Face Hub: {_first(error)}") from error
    return str(made)


def fetch(repo_id: str, *, revision: str | None, token: str | None) -> Path:
    """Download the file of a model from the Hub, or find it in the local cache; no other file is downloaded.

    Args:
        repo_id: Repository, `owner/name`.
        revision: Branch, tag or commit; None for the default branch.
        token: Access token; None for the stored one.

    Returns:
        The local file.

    Raises:
        SharingError: The name is invalid, or the download fails.
        MissingExtraError: The package `huggingface_hub` is not installed.
    """
    client = hub()
    check_name(repo_id)
    try:
        return Path(client.hf_hub_download(repo_id, TENSORS, revision=revision, token=token))
    except Exception as error:
        raise SharingError(
            f"'{repo_id}' is not a local path and could not be downloaded from the Hugging Face Hub: {_first(error)}"
        ) from error


def check_name(repo_id: str) -> None:
    """Raise SharingError for a name that can only be a local path."""
    if not re.fullmatch(r"(\w[\w.-]*/)?\w[\w.-]*", repo_id) or repo_id.endswith(".safetensors"):
        raise SharingError(f"there is no file '{repo_id}', and a model of the Hugging Face Hub is named OWNER/NAME")


def _first(error: Exception) -> str:
    """First line of the message, or the type of the error."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
