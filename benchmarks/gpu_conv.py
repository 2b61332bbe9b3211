"""Convolutions of several replicas on a GPU: one grouped convolution, or one for each replica.

    python benchmarks/gpu_conv.py

All convolutions of `net = conv` on 28 x 28 pixels with 32 channels, two encoders and a decoder, with batch norm and
tanh, forward and backward for 100 images, as a CUDA graph without torch.compile. Variants take turns; quantiles over
rounds. It takes about 20 seconds, and with --device cpu it runs without a graph.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from softspin.nets import BatchNorm, Convolution, convolutions
from softspin.nets.convolutions import activations
from softspin.provenance import provenance

SIZES = ((28, 28), (14, 14), (7, 7), (4, 4))
CHANNELS, IMAGES, LOOPS = 32, 100, 20


def stack(replicas: int, device: str, *, decodes: bool) -> tuple[nn.ModuleList, nn.ModuleList]:
    """The convolutions and batch norms of one net."""
    generators = [torch.Generator().manual_seed(seed) for seed in range(replicas)]
    sizes, channels = (SIZES[::-1], (32, 32, 32, 1)) if decodes else (SIZES, (1, 32, 32, 32))
    convs = [
        Convolution(a, b, size, generators, transposed=decodes)
        for a, b, size in zip(channels, channels[1:], sizes[1:], strict=False)
    ]
    norms = [BatchNorm(CHANNELS, replicas) for _ in convs]
    return nn.ModuleList(convs).to(device), nn.ModuleList(norms).to(device)


def update(replicas: int, device: str) -> Callable[[], None]:
    """A function that computes all gradients once."""
    nets = [stack(replicas, device, decodes=False), stack(replicas, device, decodes=False)]
    decoder = stack(replicas, device, decodes=True)
    x = torch.randn(IMAGES, replicas, *SIZES[0], device=device)
    z = torch.randn(IMAGES, replicas * CHANNELS, *SIZES[-1], device=device, requires_grad=True)
    own = [one for pair in (*nets, decoder) for part in pair for one in part.parameters()]

    def run() -> None:
        total: Tensor = torch.zeros((), device=device)
        for convs, norms in nets:
            maps = x
            for conv, norm in zip(convs, norms, strict=True):
                maps = activations(norm, conv(maps))
            total = total + maps.square().sum()
        maps = z
        for conv, norm in zip(*decoder, strict=True):
            maps = conv(activations(norm, maps))
        total = total + maps.square().sum()
        torch.autograd.grad(total, [*own, z])

    return run


def repeated(run: Callable[[], None], device: str) -> Callable[[], None]:
    """The same as a CUDA graph."""
    if device == "cpu":
        return run
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def milliseconds(run: Callable[[], None], device: str, loops: int) -> float:
    start = time.perf_counter()
    for _ in range(loops):
        run()
    if device == "cuda":
        torch.cuda.synchronize()
    return 1000 * (time.perf_counter() - start) / loops


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--replicas", type=int, nargs="+", default=[1, 3])
    parser.add_argument("--rounds", type=int, default=20)
    args = parser.parse_args()
    loops = LOOPS if args.device == "cuda" else 1
    runs: dict[str, Callable[[], None]] = {}
    for replicas in args.replicas:
        for tf32 in (False, True) if args.device == "cuda" else (False,):
            for one_by_one in (False, True) if replicas > 1 else (True,):
                torch.backends.cudnn.allow_tf32 = tf32
                convolutions.one_by_one = lambda maps, chosen=one_by_one: chosen
                what = f"{'one by one' if one_by_one else 'grouped'}, R = {replicas}{', tf32' if tf32 else ''}"
                runs[what] = repeated(update(replicas, args.device), args.device)
                if args.device == "cpu":  # without a graph, the choice is made at each call
                    milliseconds(runs[what], "cpu", 1)
    times: dict[str, list[float]] = {what: [] for what in runs}
    for _ in range(args.rounds):
        for what, run in runs.items():
            chosen = what.startswith("one")
            convolutions.one_by_one = lambda maps, chosen=chosen: chosen
            times[what].append(milliseconds(run, args.device, loops))
    rows = []
    for what, all_of in times.items():
        deciles = statistics.quantiles(all_of, n=10)
        rows.append({"what": what, "ms": statistics.median(all_of), "q10": deciles[0], "q90": deciles[-1]})
        print(json.dumps(rows[-1]), flush=True)
    made = provenance(torch.device(args.device))
    about = {"device": made.device, "commit": made.commit, "torch": made.torch}
    about["date"] = datetime.datetime.now(datetime.UTC).date().isoformat()
    if args.device == "cuda":
        path = Path(__file__).parent / "results" / "gpu_conv.json"
        path.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
