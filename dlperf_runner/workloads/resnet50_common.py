"""The network's sizes and options for the ResNet-50 programs with DLLogger's lines."""

from __future__ import annotations

import argparse

from builtin_common import options, positive

BLOCKS = (3, 4, 6, 3)
CHANNELS = (64, 128, 256, 512)
EXPANSION = 4


def resnet_options(document: str | None) -> argparse.ArgumentParser:
    parser = options(document, "images", batch_size=256, lr=0.01)
    parser.add_argument("--image-size", type=positive, default=224)
    parser.add_argument("--classes", type=positive, default=1000)
    parser.add_argument("--momentum", type=float, default=0.875)
    parser.add_argument("--wd", type=float, default=1 / 32768, help="weight decay")
    return parser
