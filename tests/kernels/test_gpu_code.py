"""Compile the GPU kernels for other GPUs, without a GPU, and check their shared memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="Triton is not installed")

SHARED_MEMORY = {80: 166912, 89: 101376, 90: 232448}
"""Maximum shared memory of a program in bytes: A100, RTX 40, H100 and H200."""

COMPILE = """
import json, sys
import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

class Absent:
    def get_current_target(self):
        return GPUTarget("cuda", int(sys.argv[1]), 32)
    def get_current_device(self):
        return 0
    def get_current_stream(self, device):
        return 0

def compile_only(self, *args, grid, warmup, **options):
    made = run(self, *args, grid=grid, warmup=True, **options)
    print(json.dumps([self.__module__.rpartition(".")[2], self.__name__, case, made.metadata.shared]))

driver.set_active(Absent())
run, JITFunction.run = JITFunction.run, compile_only

from softspin.kernels import bernoulli, gpu, gpu_bernoulli, gpu_matmul, gpu_mean_field, gpu_noise, init_rng_state

for n, replicas in json.loads(sys.argv[2]):
    case, rng_state = n, init_rng_state(0, replicas)
    z, bias, weight = torch.zeros(replicas, 1000, 2 * n), torch.zeros(replicas, 2 * n), torch.zeros(replicas, n, n)
    gpu.gibbs_sweeps(z, bias, weight, rng_state, 40)
    if replicas == 1:
        gpu.anneal(bias, weight, bias, torch.linspace(0, 1, 5), 1000, rng_state)
case = 0
x, w, g = torch.zeros(2, 100, 200), torch.zeros(2, 200, 784), torch.zeros(2, 100, 784)
gpu_matmul.launch(x, w, gpu_matmul.tile_for(100, 784, 200), False)
gpu_matmul.launch_two(g, w.mT, x.mT, g, False)
gpu_mean_field.launch(torch.zeros(2, 100, 400), torch.zeros(2, 400), torch.zeros(2, 200, 200), 5, False)
h, v, s = bernoulli.halves(x), bernoulli.halves(w), bernoulli.halves(torch.zeros(2, 100, 208))
gpu_bernoulli.launch_forward(h, v, torch.zeros(2, 784), g, False)
gpu_bernoulli.launch_backward(bernoulli.halves(g), v, s, torch.zeros(2, 100), False)
gpu_noise.launch(init_rng_state(0, 2), torch.zeros(2, 1000), 1)
"""


@pytest.mark.parametrize(
    ("capability", "boltzmanns"),
    [
        (90, [(200, 1), (200, 5)]),
        pytest.param(80, [(192, 1)], marks=pytest.mark.slow),
        pytest.param(89, [(128, 1), (100, 20)], marks=pytest.mark.slow),
    ],
)
def test_kernels_compile_and_fit(capability: int, boltzmanns: list[tuple[int, int]], tmp_path: Path) -> None:
    """Compile the sizes that `gpu` supports, (units per side, replicas), with the kernel that would run."""
    environment = os.environ | {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    run = subprocess.run(
        [sys.executable, "-c", COMPILE, str(capability), json.dumps(boltzmanns)],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-2000:]
    needs = [json.loads(line) for line in run.stdout.splitlines()]
    assert {(module, name) for module, name, *_ in needs} >= {
        ("gpu_matmul", "product"), ("gpu_matmul", "two_products"), ("gpu_mean_field", "settle"),
        ("gpu_bernoulli", "forward"), ("gpu_bernoulli", "backward"),
        ("gpu_noise", "fill"), ("gpu_shared", "quantize_weights"), ("gpu_narrow", "sweep"),
    }  # fmt: skip
    assert all(shared <= SHARED_MEMORY[capability] for *_, shared in needs), needs
    if capability == 90:
        widest = max(shared for *_, shared in needs)
        assert ("gpu_wide", "sweep") in {(module, name) for module, name, *_ in needs}
        assert widest > SHARED_MEMORY[80], "this size also fits on an A100"
