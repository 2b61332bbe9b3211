"""Time of the matrix products of a training step on this GPU, by our kernel and by torch.

    python benchmarks/gpu_matmul.py [--commit HASH] [--out FILE] [--tune]

The shapes of 2-nonlinear on MNIST: batch 100 with one sample for 1, 5 and 20 replicas, and with 25 samples for 1 and 5.
Times are of graphs of 50 products, between two events. `ours` includes the sum of the parts as a separate operation,
`parts` does not: in a compiled step the sum is fused with the next operation. Errors are the largest difference from
float64, in units of the Cauchy-Schwarz bound of the entry. With --tune, all tiles below are tried instead.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from softspin.kernels.gpu_matmul import Tile, launch, tile_for

COUNT, REPLAYS = 50, 15
NETS = [(784, 200), (200, 200), (200, 784), (400, 200)]
"""Inputs and outputs of the layers."""
TILES = [
    (16, 32, 16, 2, 3), (16, 32, 32, 2, 3), (32, 32, 16, 2, 3), (32, 32, 32, 2, 3), (64, 32, 16, 2, 3),
    (64, 32, 32, 2, 3), (32, 64, 32, 2, 3), (32, 64, 32, 4, 4), (32, 128, 16, 4, 3), (128, 64, 32, 4, 3),
]  # fmt: skip
SHARES = [1, 2, 4, 7]


def shapes(rows: int) -> list[tuple[str, int, int, int]]:
    """(kind, M, N, K) of all products of a net on this many rows: forward, gradient in x, gradient in W."""
    every = [
        product
        for n, m in NETS
        for product in [("x @ W", rows, m, n), ("g @ W'", rows, n, m), ("x' @ g", n, m, rows)]
        if product != ("g @ W'", rows, 784, 200)  # the image needs no gradient
    ]
    return list(dict.fromkeys(every))


def factors(kind: str, replicas: int, m: int, n: int, k: int) -> tuple[Tensor, Tensor]:
    a, b = torch.randn(replicas, m, k, device="cuda"), torch.randn(replicas, k, n, device="cuda")
    return a.mT.contiguous().mT if kind == "x' @ g" else a, b.mT.contiguous().mT if kind == "g @ W'" else b


def microseconds(multiply: Callable[[], Tensor], replays: int = REPLAYS) -> list[float]:
    """Quantiles 0.1, 0.5 and 0.9 over the replays of the mean time of one product."""
    multiply()  # compiles
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(COUNT):
            multiply()
    graph.replay()
    times = []
    for _ in range(replays):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(1e3 * start.elapsed_time(end) / COUNT)
    low, middle, high = torch.tensor(times).quantile(torch.tensor([0.1, 0.5, 0.9])).tolist()
    return [round(low, 2), round(middle, 2), round(high, 2)]


def error(got: Tensor, a: Tensor, b: Tensor) -> float:
    a, b = a.double(), b.double()
    scale = a.norm(dim=-1)[..., :, None] * b.norm(dim=-2)[..., None, :]
    return float(f"{((got.double() - a @ b).abs() / scale).max().item():.2e}")


def row(kind: str, replicas: int, m: int, n: int, k: int) -> dict[str, Any]:
    a, b = factors(kind, replicas, m, n, k)
    tile = tile_for(m, n, k)
    found: dict[str, Any] = {"what": {"kind": kind, "replicas": replicas, "M": m, "N": n, "K": k}, "tile": [*tile]}
    ways: dict[str, Callable[[bool], Tensor]] = {
        "parts": lambda tf32: launch(a, b, tile, tf32),
        "ours": lambda tf32: launch(a, b, tile, tf32).sum(0) if tile.split_k > 1 else launch(a, b, tile, tf32)[0],
        "bmm": lambda tf32: torch.bmm(a, b),
    }
    for tf32, (name, multiply) in itertools.product((False, True), ways.items()):
        torch.backends.cuda.matmul.fp32_precision = "tf32" if tf32 else "ieee"
        low, middle, high = microseconds(lambda multiply=multiply, tf32=tf32: multiply(tf32))
        timing: dict[str, Any] = {"us": {"median": middle, "q10": low, "q90": high}}
        if name != "parts":
            timing["error"] = error(multiply(tf32), a, b)
        found[name + (" tf32" if tf32 else "")] = timing
    return found


def tuned(kind: str, replicas: list[int], m: int, n: int, k: int, tf32: bool) -> dict[str, Any]:
    """The tiles by the geometric mean of the time, sum included, over the numbers of replicas: the best three."""
    torch.backends.cuda.matmul.fp32_precision = "tf32" if tf32 else "ieee"
    pairs = [factors(kind, count, m, n, k) for count in replicas]
    every = [Tile(*tile, split_k) for tile in TILES for split_k in SHARES if split_k == 1 or split_k * 2 * tile[2] <= k]
    now = tile_for(m, n, k)
    times = {}
    for tile in dict.fromkeys([now, *every]):
        add = (lambda parts: parts.sum(0)) if tile.split_k > 1 else (lambda parts: parts)
        times[tile] = [microseconds(lambda a=a, b=b: add(launch(a, b, tile, tf32)), 3)[1] for a, b in pairs]  # noqa: B023
    best = sorted(times, key=lambda tile: math.prod(times[tile]))[:3]
    return {
        "what": {"kind": kind, "replicas": replicas, "M": m, "N": n, "K": k, "tf32": tf32},
        "bmm": [microseconds(lambda a=a, b=b: torch.bmm(a, b), 3)[1] for a, b in pairs],
        "now": {str([*now]): times[now]},
        "best": {str([*tile]): times[tile] for tile in best},
    }


def show(found: dict[str, Any]) -> None:
    what = found["what"]
    head = f"{what['kind']}  R {what['replicas']}  {what['M']} x {what['N']} x {what['K']}"
    if "best" in found:
        print(f"{head}: bmm {found['bmm']}, now {found['now']}, best {found['best']}", flush=True)
        return
    ways = {name: found[name] for name in found if name not in ("what", "tile")}
    timing = (f"{name} {way['us']['median']:.1f}" + (f" ({way['error']:.0e})" if "error" in way else "")
            for name, way in ways.items())  # fmt: skip
    print(f"{head:34} {found['tile']!s:24} " + ", ".join(timing), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--tune", action="store_true")
    parser.add_argument("--tf32", action="store_true", help="tune for TF32")
    options = parser.parse_args()
    torch.manual_seed(0)
    where = {"device": torch.cuda.get_device_name(), "commit": options.commit, "torch": torch.__version__}
    where["date"] = datetime.datetime.now(datetime.UTC).date().isoformat()
    some: dict[int, list[int]] = {100: [1, 5, 20], 2500: [1, 5]}
    if options.tune:
        jobs = [lambda s=s, r=r: tuned(s[0], r, *s[1:], options.tf32) for rows, r in some.items() for s in shapes(rows)]
    else:
        jobs = [
            lambda s=s, r=r: row(s[0], r, *s[1:]) for rows, many in some.items() for r in many for s in shapes(rows)
        ]
    rows = []
    for job in jobs:
        found = job()
        show(found)
        rows.append(found | where)
        if options.out:  # after every case: a run that is cut off keeps what it has
            options.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
