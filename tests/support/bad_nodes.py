"""Faults of a lab's node that `doctor` finds, for as long as a test needs them."""

from collections.abc import Iterator
from contextlib import contextmanager

from lab_under_test import Lab

# Stops the programs of a node four fifths of the time: what a limit of a cgroup does, without one.
_THROTTLE = """\
while test -e /tmp/throttle; do
  pkill -STOP -f '[p]ytorch_nodes.py --op'; sleep 0.12
  pkill -CONT -f '[p]ytorch_nodes.py --op'; sleep 0.03
done
"""
# Flips a bit of a parameter in memory after step 16, on the second device of a node, as a broken
# device may do it (Dixit et al., Silent Data Corruptions at Scale, 2021). Python reads it when it
# starts.
_FLIP = """\
import os, sys
if "same" in sys.orig_argv and os.environ.get("LOCAL_RANK") == "1":
    sys.path.append("/usr/lib/python3/dist-packages")  # which is added later
    import torch
    step, steps = torch.optim.AdamW.step, iter(range(1, 51))
    def flipped(self, *given, **more):
        step(self, *given, **more)
        if next(steps) == 16:
            parameters = self.param_groups[0]["params"][-1].detach()
            parameters.view(torch.int32).view(-1)[0].bitwise_xor_(1 << 12)
    torch.optim.AdamW.step = flipped
"""
_PACKAGES = "$(echo /opt/dlperf/envs/pytorch/lib/python3*/site-packages)"


@contextmanager
def throttled(lab: Lab, node: str) -> Iterator[None]:
    """The programs of --hunt get a fifth of the node's time."""
    lab.said(node, f"touch /tmp/throttle; cat > /tmp/throttle.sh <<'END'\n{_THROTTLE}END\n")
    lab.said(node, "nohup bash /tmp/throttle.sh > /dev/null 2>&1 < /dev/null &")
    try:
        yield
    finally:
        lab.said(node, "rm /tmp/throttle")


@contextmanager
def flipping_a_bit(lab: Lab, node: str) -> Iterator[None]:
    """The second device of the node computes other bits than the others of --same."""
    plant = f"cd {_PACKAGES} && echo import flip > flip.pth && cat > flip.py"
    lab.said(node, f"{plant} <<'END'\n{_FLIP}END\n")
    try:
        yield
    finally:
        lab.said(node, f"cd {_PACKAGES} && rm flip.pth flip.py")


@contextmanager
def slow_port(lab: Lab, node: str) -> Iterator[None]:
    """What the node sends is limited to 100 Mbit/s."""
    limit = "tbf rate 100mbit burst 64kb latency 50ms"
    lab.said(node, f"tc qdisc add dev eth0 root {limit}")
    try:
        yield
    finally:
        lab.said(node, "tc qdisc del dev eth0 root")
