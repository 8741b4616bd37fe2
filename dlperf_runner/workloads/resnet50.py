"""ResNet-50 v1.5, also called v1b, of the parts of any framework.

Its stride is in the 3x3 convolution, unlike in v1. It has 25,557,032 parameters for 1000 classes.
Runs on Python 3.7.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

EXPANSION = 4  # of the channels in a block
FEATURES = 512 * EXPANSION  # that leave the last block


def bottlenecks() -> Iterator[tuple[int, int, int]]:
    """The channels that enter each block, those within it, and its stride. EXPANSION times those
    within leave it, and enter the next."""
    inputs = 64
    for stage, (blocks, channels) in enumerate(((3, 64), (4, 128), (6, 256), (3, 512))):
        for block in range(blocks):
            yield inputs, channels, 2 if stage > 0 and block == 0 else 1
            inputs = channels * EXPANSION


def layers(
    convolution: Callable[[int, int, int, int], list[Any]],
    relu: Callable[[], Any],
    pool: Any,
    residual: Callable[[list[Any], list[Any]], Any],
) -> list[Any]:
    """The layers from images to FEATURES for each pixel that is left.

    `convolution` takes inputs, outputs, size and stride, and gives one without bias and its
    normalisation. `residual` gives the block that adds a body and a shortcut, which may be of no
    layers, and takes `relu` of the sum. `pool` is over 3x3 pixels with a stride of 2.
    """
    network = [*convolution(3, 64, 7, 2), relu(), pool]
    for inputs, channels, stride in bottlenecks():
        outputs = channels * EXPANSION
        body = [*convolution(inputs, channels, 1, 1), relu()]
        body += [*convolution(channels, channels, 3, stride), relu()]
        body += convolution(channels, outputs, 1, 1)
        shortcut = [] if inputs == outputs else convolution(inputs, outputs, 1, stride)
        network.append(residual(body, shortcut))
    return network


def in_torch(nn: Any, classes: int, in_place: bool) -> Any:
    """The network of PyTorch's modules, or of those of OneFlow, which have their names.

    The last normalisation of a block begins at zero, so that the block begins as its shortcut.
    """

    def convolution(inputs: int, outputs: int, size: int, stride: int) -> list[Any]:
        layer = nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False)
        nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
        return [layer, nn.BatchNorm2d(outputs)]

    def relu() -> Any:
        return nn.ReLU(inplace=in_place)

    class Residual(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, body: list[Any], shortcut: list[Any]) -> None:
            super().__init__()
            nn.init.zeros_(body[-1].weight)
            self.body = nn.Sequential(*body)
            self.shortcut = nn.Sequential(*shortcut) if shortcut else nn.Identity()
            self.relu = relu()

        def forward(self, images: Any) -> Any:
            return self.relu(self.body(images) + self.shortcut(images))

    return nn.Sequential(
        *layers(convolution, relu, nn.MaxPool2d(3, 2, 1), Residual),
        *(nn.AdaptiveAvgPool2d((1, 1)), nn.Flatten(), nn.Linear(FEATURES, classes)),
    )
