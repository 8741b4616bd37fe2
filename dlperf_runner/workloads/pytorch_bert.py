"""Pretrain BERT with PyTorch on a fixed synthetic batch; print DLLogger's lines.

As in NVIDIA's DeepLearningExamples, the network predicts 5 of 32 tokens of a sequence (20 of 128,
80 of 512), and whether the second half of the sequence follows the first. A step is forward,
backward, all-reduce and LAMB's update; with `--accumulation-steps`, it is that many batches, and
then one all-reduce and one update. `train.total_ips` is the rate of all devices in sequences per
second, `train.loss` the mean over them.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

from builtin_common import at_least, check, on_or_off, options, parsed, positive
from dllogger_common import say_parameters, training
from pytorch_common import PyTorchProcess, PyTorchRun, autocast, data_parallel, leave, use_precision

POSITIONS = 512


class BertSize(NamedTuple):
    """`hidden`: the width between the two layers of the feed-forward network."""

    width: int
    layers: int
    heads: int
    hidden: int
    vocabulary: int

    @property
    def parameters(self) -> int:
        """Those of the embeddings, the layers, and the two predictions, whose output layer for
        tokens is the transposed embedding."""
        square = self.width * self.width + self.width
        embeddings = (self.vocabulary + POSITIONS + 2 + 2) * self.width
        layer = 4 * square + 2 * self.width * self.hidden + self.hidden + 5 * self.width
        tokens = square + 2 * self.width + self.vocabulary
        return embeddings + self.layers * layer + tokens + square + 2 * self.width + 2


SIZES = {
    "bert-lab": BertSize(width=128, layers=2, heads=2, hidden=512, vocabulary=1024),
    # The vocabulary has 30,522 tokens; the next multiple of 8 is faster.
    "bert-large": BertSize(width=1024, layers=24, heads=16, hidden=4096, vocabulary=30_528),
}


def predicted(sequence_length: int) -> int:
    """The number of tokens of a sequence that are predicted."""
    return 5 * sequence_length // 32


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = options(__doc__, "sequences", batch_size=256, lr=0.002)
    parser.add_argument("--model", choices=SIZES, default="bert-large")
    parser.add_argument("--sequence-length", type=at_least(8), default=128, help="in tokens")
    parser.add_argument(
        "--accumulation-steps", type=positive, default=1, help="batches before each update"
    )
    parser.add_argument("--compile", type=on_or_off, default=False, metavar="on|off")
    arguments = parsed(parser, argv)
    if arguments.sequence_length > POSITIONS:
        parser.error(f"--sequence-length must not exceed {POSITIONS}")
    return arguments


def batch(torch: Any, arguments: argparse.Namespace, device: Any) -> tuple[Any, ...]:
    """Sequences without padding: their tokens, the half that each token is in, the indices of the
    tokens to predict among all, what they are, and whether the second half follows the first."""
    sequences, length = arguments.batch_size, arguments.sequence_length
    vocabulary = SIZES[arguments.model].vocabulary
    tokens = torch.randint(vocabulary, (sequences, length), device=device)
    halves = (2 * torch.arange(length, device=device) // length).expand(sequences, length)
    places = torch.rand((sequences, length), device=device).topk(predicted(length)).indices
    indices = (places + length * torch.arange(sequences, device=device)[:, None]).flatten()
    answers = torch.randint(vocabulary, indices.shape, device=device)
    return tokens, halves, indices, answers, torch.randint(2, (sequences,), device=device)


def prepared(
    torch: Any, arguments: argparse.Namespace, place: PyTorchProcess, device: Any
) -> tuple[Any, Callable[[], Any]]:
    """The network, and a function that takes a step on a fixed batch and returns its loss."""
    from pytorch_bert_model import Bert, Lamb, decayed

    torch.manual_seed(arguments.seed)  # the same network everywhere
    network = Bert(SIZES[arguments.model], POSITIONS).to(device)
    use_precision(torch, arguments.precision)
    optimizer = Lamb(decayed(network), lr=arguments.lr)
    network = data_parallel(torch, network, device)
    held = network.no_sync if place.world_size > 1 else contextlib.nullcontext
    if arguments.compile:
        network = torch.compile(network)

    torch.manual_seed(arguments.seed + 1 + place.rank)
    tokens, halves, indices, answers, follows = batch(torch, arguments, device)
    scaler = torch.amp.GradScaler(device.type, enabled=arguments.precision == "amp")
    cross_entropy = torch.nn.functional.cross_entropy

    def step() -> Any:
        optimizer.zero_grad(set_to_none=True)
        for left in reversed(range(arguments.accumulation_steps)):
            with held() if left else contextlib.nullcontext():
                with autocast(torch, device, arguments.precision):
                    of_tokens, of_halves = network(tokens, halves, indices)
                    loss = cross_entropy(of_tokens, answers) + cross_entropy(of_halves, follows)
                scaler.scale(loss / arguments.accumulation_steps).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    return network, step


def train(arguments: argparse.Namespace) -> list[float]:
    """Train on a fixed batch, and return the losses."""
    run = PyTorchRun(arguments, say_parameters, prepared)
    samples = run.samples * arguments.accumulation_steps
    return training(arguments, run.say, samples, run.step, run.wait, run.mean, run.communication)


def main(argv: list[str] | None = None) -> None:
    leave("pytorch_bert", check(train(parse_arguments(argv))))


if __name__ == "__main__":
    main()
