"""A Ray cluster of two nodes with one core each, on loopback: `python ray_nodes.py FOLDER`.

It prints its address. A line of input kills the second node, as if its machine had lost power, and prints a line; the
end of the input ends the cluster.
"""

from __future__ import annotations

import sys
from typing import Any


def main() -> None:
    import ray
    from ray.cluster_utils import Cluster

    ray._private.ray_constants.ENABLE_RAY_CLUSTER = False
    node: dict[str, Any] = {"num_cpus": 1, "node_ip_address": "127.0.0.1", "include_log_monitor": False}
    head = {**node, "temp_dir": sys.argv[1], "include_dashboard": False, "no_monitor": True}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        second = cluster.add_node(**node)
        print("address", cluster.address, flush=True)
        for _ in sys.stdin:
            cluster.remove_node(second, allow_graceful=False)
            print("removed", flush=True)
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    main()
