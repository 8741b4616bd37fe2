"""The network of ArcFace, and its softmax over centres that are divided among the processes, for
pytorch_arcface.py. Runs with PyTorch 2.6 or newer.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from builtin_common import share_of
from torch import distributed, nn
from torch.nn import functional

if TYPE_CHECKING:
    from pytorch_common import PyTorchProcess

MARGIN, SCALE = 0.5, 64.0
SPREAD = 0.01  # of the centres at the beginning
# The slope of the arc cosine is infinite at 1.
NEAREST = 1 - 1e-6
ABSENT = -1  # the label of a sample whose class has its centre in another process


def convolution(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False)


class ResidualUnit(nn.Module):
    """Two convolutions, normalised before and behind each; the second one has the stride."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.BatchNorm2d(inputs),
            convolution(inputs, width, 3),
            nn.BatchNorm2d(width),
            nn.PReLU(width),
            convolution(width, width, 3, stride),
            nn.BatchNorm2d(width),
        )
        self.shortcut = nn.Sequential()
        if stride > 1 or inputs != width:
            self.shortcut.extend([convolution(inputs, width, 1, stride), nn.BatchNorm2d(width)])

    def forward(self, images: Any) -> Any:
        return self.body(images) + self.shortcut(images)


class Backbone(nn.Module):
    """insightface's residual networks: images in, embeddings out. `network` has the units and the
    widths of its stages, and the embedding's. For images of 112 pixels, r50 has 43,590,848
    parameters."""

    def __init__(self, network: Any, image_size: int) -> None:
        super().__init__()
        first, last = network.widths[0], network.widths[-1]
        layers: list[nn.Module] = [convolution(3, first, 3), nn.BatchNorm2d(first)]
        layers.append(nn.PReLU(first))
        inputs = first
        for units, width in zip(network.units, network.widths, strict=True):
            for unit in range(units):
                layers.append(ResidualUnit(inputs, width, 2 if unit == 0 else 1))
                inputs = width
        pixels = (image_size // 2 ** len(network.units)) ** 2
        self.layers = nn.Sequential(*layers, nn.BatchNorm2d(last), nn.Flatten())
        self.embed = nn.Linear(last * pixels, network.embedding)
        self.features = nn.BatchNorm1d(network.embedding)
        self.features.weight.requires_grad = False
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.normal_(module.weight, std=0.1)

    def forward(self, images: Any) -> Any:
        return self.features(self.embed(self.layers(images)))


class Exchange:
    """Communication of the processes; `alone`, each takes its own rows for those of the others.

    What is computed is then wrong, but takes as long.
    """

    def __init__(self, place: PyTorchProcess) -> None:
        self.place, self.alone = place, False

    def gather(self, rows: Any) -> Any:
        """The rows of all processes."""
        if self.place.world_size == 1:
            return rows
        parts = [rows] * self.place.world_size
        if not self.alone:
            parts = [torch.empty_like(rows) for _ in parts]
            distributed.all_gather(parts, rows.contiguous())
        return torch.cat(parts)

    def reduce(self, values: Any, operation: Any = distributed.ReduceOp.SUM) -> Any:
        if self.place.world_size > 1 and not self.alone:
            distributed.all_reduce(values, operation)
        return values


class Gathered(torch.autograd.Function):
    """The rows of all processes from those of each."""

    @staticmethod
    def forward(context: Any, rows: Any, together: Exchange) -> Any:
        context.together = together
        return together.gather(rows)

    @staticmethod
    def backward(context: Any, gradient: Any) -> tuple[Any, None]:
        """Each process has the gradient of its share of the softmax: together they are that of the
        mean loss over all samples. The backbone's gradients will be divided by the number of
        processes, which this makes up for."""
        place = context.together.place
        gradient = context.together.reduce(gradient.contiguous())
        return gradient.chunk(place.world_size)[place.rank] * place.world_size, None


class SharedCrossEntropy(torch.autograd.Function):
    """The mean cross entropy of logits whose columns are divided among the processes. A label is a
    column, or ABSENT."""

    @staticmethod
    def forward(context: Any, logits: Any, labels: Any, together: Exchange) -> Any:
        highest = logits.max(dim=1, keepdim=True).values
        together.reduce(highest, distributed.ReduceOp.MAX)
        shifted = logits - highest
        rows = (labels != ABSENT).nonzero(as_tuple=True)[0]
        columns = labels[rows]
        of_label = torch.zeros(len(labels), device=logits.device)
        of_label[rows] = shifted[rows, columns]
        together.reduce(of_label)
        odds = shifted.exp_()
        total = together.reduce(odds.sum(dim=1, keepdim=True))
        context.save_for_backward(odds.div_(total), rows, columns)
        return (total[:, 0].log() - of_label).mean()

    @staticmethod
    def backward(context: Any, gradient: Any) -> tuple[Any, None, None]:
        odds, rows, columns = context.saved_tensors
        odds[rows, columns] -= 1
        return odds.mul_(gradient / len(odds)), None, None


class PartialFC(nn.Module):
    """The additive angular margin softmax (arXiv 1801.07698) over classes whose centres are divided
    among the processes, or over a sample of them (arXiv 2203.15565)."""

    def __init__(self, classes: int, embedding: int, rate: float, place: PyTorchProcess) -> None:
        super().__init__()
        self.together = Exchange(place)
        self.first, self.count = share_of(classes, place.world_size, place.rank)
        self.sampled = self.count if rate == 1 else int(rate * self.count)
        self.weight = nn.Parameter(torch.normal(0, SPREAD, (self.count, embedding)))

    def forward(self, embeddings: Any, labels: Any) -> Any:
        """Embeddings and classes of this process's samples in; the mean loss of all samples."""
        if self.together.place.world_size > 1:
            embeddings = Gathered.apply(embeddings, self.together)
        labels = self.together.gather(labels) - self.first
        labels = torch.where((labels >= 0) & (labels < self.count), labels, ABSENT)
        centres, labels = self.sample(labels)
        cosines = functional.linear(functional.normalize(embeddings), functional.normalize(centres))
        logits = SCALE * with_margin(cosines.clamp(-NEAREST, NEAREST), labels)
        return SharedCrossEntropy.apply(logits, labels, self.together)

    def sample(self, labels: Any) -> tuple[Any, Any]:
        """The centres that take part, those of the labels among them, and the labels as their
        rows."""
        if self.sampled == self.count:
            return self.weight, labels
        present = labels[labels != ABSENT].unique()
        order = torch.rand(self.count, device=labels.device)
        order[present] = 2.0
        chosen = order.topk(max(self.sampled, len(present))).indices.sort().values
        rows = torch.searchsorted(chosen, labels)
        return self.weight[chosen], torch.where(labels == ABSENT, ABSENT, rows)


def with_margin(cosines: Any, labels: Any) -> Any:
    """The cosines, that of a sample's own class for an angle that is larger by the margin."""
    rows = (labels != ABSENT).nonzero(as_tuple=True)[0]
    chosen = cosines[rows, labels[rows]]
    sine = (1 - chosen * chosen).sqrt()
    wider = chosen * math.cos(MARGIN) - sine * math.sin(MARGIN)
    return cosines.index_put((rows, labels[rows]), wider)
