"""BERT with its two pretraining objectives, and LAMB, for pytorch_bert.py. Runs with PyTorch 2.6 or
newer.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

EPSILON = 1e-12
DROPOUT = 0.1
SPREAD = 0.02  # of the values at the beginning
DECAY = 0.01


def initialise(module: nn.Module) -> None:
    for name, parameter in module.named_parameters(recurse=False):
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=SPREAD)
        elif name.endswith("bias"):
            nn.init.zeros_(parameter)


class Bert(nn.Module):
    """Layers that are normalised behind each residual sum, as in the paper (arXiv 1810.04805).
    `size` is a BertSize of pytorch_bert.py."""

    def __init__(self, size: Any, positions: int) -> None:
        super().__init__()
        width = size.width
        self.tokens = nn.Embedding(size.vocabulary, width)
        self.positions = nn.Embedding(positions, width)
        self.halves = nn.Embedding(2, width)
        self.embedded = nn.Sequential(nn.LayerNorm(width, eps=EPSILON), nn.Dropout(DROPOUT))
        self.layers = nn.Sequential(
            *(
                nn.TransformerEncoderLayer(
                    *(width, size.heads, size.hidden, DROPOUT, "gelu", EPSILON), batch_first=True
                )
                for _ in range(size.layers)
            )
        )
        self.predicting = nn.Sequential(
            nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width, eps=EPSILON)
        )
        self.token_bias = nn.Parameter(torch.zeros(size.vocabulary))
        self.following = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 2))
        self.apply(initialise)

    def forward(self, tokens: Any, halves: Any, indices: Any) -> tuple[Any, Any]:
        """(sequence, position) and the indices of tokens among all: the scores of each of these
        tokens, and those of the halves of each sequence."""
        places = self.positions.weight[: tokens.shape[1]]
        hidden = self.layers(self.embedded(self.tokens(tokens) + places + self.halves(halves)))
        predicted = self.predicting(hidden.flatten(0, 1)[indices])
        scores = functional.linear(predicted, self.tokens.weight, self.token_bias)
        return scores, self.following(hidden[:, 0])


def decayed(network: nn.Module) -> list[dict[str, Any]]:
    """The parameters in two groups: matrices, whose weights decay, and vectors."""
    matrices = [p for p in network.parameters() if p.dim() > 1]
    vectors = [p for p in network.parameters() if p.dim() < 2]
    return [{"params": matrices, "decay": DECAY}, {"params": vectors, "decay": 0.0}]


class Lamb(torch.optim.Optimizer):
    """LAMB (arXiv 1904.00962), in two variations of NVIDIA's: gradients are clipped to a norm of 1,
    and parameters without decay take Adam's step."""

    def __init__(
        self,
        groups: list[dict[str, Any]],
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-6,
    ) -> None:
        super().__init__(groups, {"lr": lr, "betas": betas, "epsilon": epsilon, "taken": 0})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # noqa: ARG002 (as every optimiser)
        every = [parameter for group in self.param_groups for parameter in group["params"]]
        nn.utils.clip_grad_norm_(every, 1.0)
        for group in self.param_groups:
            group["taken"] += 1
            self._update(group)

    def _update(self, group: dict[str, Any]) -> None:
        parameters = group["params"]
        gradients = [parameter.grad for parameter in parameters]
        for parameter in parameters:
            if not self.state[parameter]:
                state = {"mean": torch.zeros_like(parameter), "square": torch.zeros_like(parameter)}
                self.state[parameter] = state
        means = [self.state[parameter]["mean"] for parameter in parameters]
        squares = [self.state[parameter]["square"] for parameter in parameters]
        first, second = group["betas"]
        torch._foreach_lerp_(means, gradients, 1 - first)
        torch._foreach_mul_(squares, second)
        torch._foreach_addcmul_(squares, gradients, gradients, 1 - second)

        roots = torch._foreach_div(squares, 1 - second ** group["taken"])
        torch._foreach_sqrt_(roots)
        torch._foreach_add_(roots, group["epsilon"])
        updates = torch._foreach_div(means, 1 - first ** group["taken"])
        torch._foreach_div_(updates, roots)
        if group["decay"]:
            torch._foreach_add_(updates, parameters, alpha=group["decay"])
            sizes, changes = (torch.stack(torch._foreach_norm(t)) for t in (parameters, updates))
            trust = torch.where((sizes > 0) & (changes > 0), sizes / changes, 1.0)
            torch._foreach_mul_(updates, list(trust.unbind()))
        torch._foreach_add_(parameters, updates, alpha=-group["lr"])
