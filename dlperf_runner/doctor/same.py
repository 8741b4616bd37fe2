"""Which device computes other bits than its equals in a training that must give the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..core.errors import UserError
from ..core.lists import counted, grouped
from .findings import Finding
from .hunt import NodeCampaign

CHECK = "same bits"
_HINT = (
    "compare again; if it differs again, take the device out of use, test it (dlperf doctor --dcgm"
    " 3, a memory test), and compare the versions of its libraries"
)


@dataclass(frozen=True)
class Bits:
    """`losses` are the bits of each step's loss in hexadecimal, `parameters` is a SHA-256."""

    device: str
    product: str
    version: str
    losses: tuple[str, ...]
    parameters: str


def bits_of(campaign: NodeCampaign) -> list[Bits]:
    """The bits that each device of the campaign's nodes computes."""
    bits: list[Bits] = []
    for line in campaign.lines():
        try:
            losses = tuple(map(str, line["losses"]))
            is_finite(losses)  # each is a hexadecimal number
            product, version, digest = (
                str(line[key]) for key in ("product", "torch", "parameters")
            )
            bits.append(Bits(campaign.member(int(line["rank"])), product, version, losses, digest))
        except (KeyError, TypeError, ValueError, IndexError) as error:
            expected = "rank, product, torch, losses and parameters"
            raise UserError("invalid log", expected=expected, found=repr(error)) from None
    devices = len(campaign.names) * campaign.devices
    if len({each.device for each in bits}) < devices:
        expected, given = f"{devices} devices", ", ".join(each.device for each in bits)
        raise UserError("devices are missing in the log", expected=expected, found=given)
    return bits


def is_finite(losses: Sequence[str]) -> bool:
    """True if there are losses, and all are numbers: 11 bits of an exponent that are not all 1."""
    return bool(losses) and all(int(loss, 16) >> 52 & 0x7FF != 0x7FF for loss in losses)


def same_findings(devices: Sequence[Bits]) -> Iterator[Finding]:
    """Products and versions are compared within themselves. The bits of most are right; without a
    majority, nobody is accused alone."""
    for (product, version), equals in grouped(devices, lambda d: (d.product, d.version)).items():
        kind = f"{product}, PyTorch {version}"
        expected = f"the bits of the other {kind}"
        counts = Counter((each.losses, each.parameters) for each in equals)
        (usual, number), *_ = counts.most_common()
        if len(equals) == 1:
            text = f"{equals[0].device} is the only {kind}: nothing to compare with"
            yield Finding("", CHECK, "warning", expected, text, "name more nodes of this product")
        elif not is_finite(usual[0]):
            text = f"{counted(number, 'device')} of {kind} have losses that are no numbers"
            yield Finding("", CHECK, "failed", "finite losses", text, _HINT)
        elif len(counts) == 1:
            text = f"{counted(number, 'device')} of {kind} agree: {usual[1][:12]}"
            yield Finding("", CHECK, "ok", expected, text)
        elif 2 * number <= len(equals):
            groups = grouped(equals, lambda each: each.parameters[:12])
            texts = (f"{bits} on {', '.join(d.device for d in on)}" for bits, on in groups.items())
            yield Finding("", CHECK, "failed", expected, "; ".join(texts), _HINT)
        else:
            for each in (d for d in equals if (d.losses, d.parameters) != usual):
                pairs = enumerate(zip(each.losses, usual[0], strict=False), 1)
                step = next((n for n, (loss, other) in pairs if loss != other), None)
                where = f"from step {step} on" if step else "in the parameters alone"
                text = f"{each.device} differs from {counted(number, 'device')} {where}"
                yield Finding(each.device.split()[0], CHECK, "failed", expected, text, _HINT)
