"""Safetensors files with a text and a digest of text and tensors in their header."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

import safetensors.torch
import torch
from torch import Tensor

BOLTZMANN_KEY = "softspin_boltzmann"
"""Key of the text in the file of a Boltzmann machine on its own."""
SEAL = "sha256"
"""Key of the digest in the header, which older files lack."""


def pack(tensors: Mapping[str, Tensor], key: str, text: str) -> bytes:
    """The content of a file; the same text and tensors always give the same bytes.

    Args:
        tensors: Tensors on the CPU, by name.
        key: Key of the text in the header.
        text: Description of the tensors.

    Returns:
        The bytes of a safetensors file.
    """
    header = {"format": "pt", key: text, SEAL: digest(text, tensors)}
    return _in_order(safetensors.torch.save(dict(tensors), header))


def is_intact(header: Mapping[str, str], text: str, tensors: Mapping[str, Tensor]) -> bool:
    """Whether a file has the digest that was written, or none, as older files.

    Args:
        header: Header of the file.
        text: Description in the header.
        tensors: Tensors that were read.

    Returns:
        False if they were changed.
    """
    return SEAL not in header or header[SEAL] == digest(text, tensors)


def digest(text: str, tensors: Mapping[str, Tensor]) -> str:
    """The SHA-256 of a text and of every tensor: name, type, shape and values.

    Args:
        text: The text.
        tensors: Tensors on the CPU, by name.

    Returns:
        Hexadecimal digits.
    """
    found = hashlib.sha256(text.encode())
    for name, value in sorted(tensors.items()):
        found.update(f"\0{name} {value.dtype} {tuple(value.shape)}\0".encode())
        found.update(value.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def _in_order(content: bytes) -> bytes:
    """The same safetensors file with sorted keys in its header, whose order is random otherwise."""
    size = int.from_bytes(content[:8], "little")
    header = json.dumps(json.loads(content[8 : 8 + size]), sort_keys=True, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)  # tensors begin at a multiple of 8 bytes
    return len(header).to_bytes(8, "little") + header + content[8 + size :]
