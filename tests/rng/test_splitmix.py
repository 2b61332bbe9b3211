"""SplitMix64: Python integers, NumPy, numba and torch give the same words, and the constants are defined once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import softspin
from softspin.random.splitmix import GAMMA, MASK, ROUNDS, mix_, mix_int, mix_uint64, multiply_rounds_, signed

SOURCE = Path(softspin.__file__).parent
WORDS = [0, 1, GAMMA, 2**63 - 1, 2**63, MASK, *(pow(3, k, 2**64) for k in range(1, 200))]


def test_the_published_words_of_key_1234567() -> None:
    """Compare with the output of Vigna's splitmix64.c for this seed, a common test vector."""
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    assert [mix_int(1234567 + k * GAMMA) for k in range(4)] == expected


def test_every_number_type_gives_the_same_words() -> None:
    expected = [mix_int(word - GAMMA) for word in WORDS]
    assert mix_uint64(np.array(WORDS, dtype=np.uint64)).tolist() == expected
    words = torch.tensor([signed(word) for word in WORDS])
    assert mix_(words.clone()).tolist() == [signed(word) for word in expected]
    top = multiply_rounds_(words.clone()) >> 33
    assert top.tolist() == [signed(word) >> 33 for word in expected]


def test_numba_gives_the_same_words() -> None:
    mix = pytest.importorskip("softspin.kernels.cpu_draw").mix
    assert [int(mix(np.uint64(word))) for word in WORDS] == [mix_int(word - GAMMA) for word in WORDS]


def test_a_change_of_the_constants_invalidates_the_numba_cache() -> None:
    files = pytest.importorskip("softspin.kernels.cpu_jit")._files
    assert SOURCE / "random" / "splitmix.py" in files
    assert SOURCE / "kernels" / "cpu_draw.py" in files


def test_the_constants_are_defined_once() -> None:
    numbers = [GAMMA, *(factor for _, factor in ROUNDS)]
    texts = {path.relative_to(SOURCE).as_posix(): path.read_text().upper() for path in SOURCE.rglob("*.py")}
    for number in numbers:
        assert [name for name, text in texts.items() if f"{number:X}" in text] == ["random/splitmix.py"]
