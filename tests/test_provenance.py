"""The choice of the device."""

from __future__ import annotations

import pytest
import torch

from softspin.errors import DeviceError
from softspin.provenance import find_device


def with_a_gpu(monkeypatch: pytest.MonkeyPatch, name: str, capability: tuple[int, int]) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: name)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: pytest.fail("no GPU was chosen by its number"))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("capability", [(8, 0), (8, 9), (12, 0)])
def test_a_supported_gpu_is_used(monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int]) -> None:
    with_a_gpu(monkeypatch, "A100", capability)
    assert find_device("auto") == torch.device("cuda")
    assert find_device("cpu") == torch.device("cpu")
    with pytest.raises(DeviceError, match="'cuda:1' was requested, but torch finds only 1 GPU; use auto or cpu"):
        find_device("cuda:1")


def test_a_gpu_that_is_chosen_by_its_number_becomes_the_current_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton starts kernels on the current one, whichever GPU the tensors are on."""
    with_a_gpu(monkeypatch, "A100", (8, 0))
    current: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "set_device", current.append)
    assert find_device("cuda:0") == torch.device("cuda:0")
    assert current == [torch.device("cuda:0")]


def test_a_gpu_that_is_too_old_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with_a_gpu(monkeypatch, "Tesla T4", (7, 5))
    old = "Tesla T4 has compute capability 7.5; the kernels need 8.0 or more"
    with pytest.warns(UserWarning, match=f"running on the CPU: {old}"):
        assert find_device("auto") == torch.device("cpu")
    with pytest.raises(DeviceError, match=f"device 'cuda' was requested, but {old}; use auto or cpu"):
        find_device("cuda")
