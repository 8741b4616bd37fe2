"""Train ResNet-50 on JPEG images that processes of PyTorch's DataLoader decode, beside the same
training on a fixed batch.

    python jpeg_input.py --folder DIR [--images 2048] [--batch-size 256] [--workers 16] [--no-cuda]

The images are noise of 500 x 375 pixels, which the folder gets first; Pillow decodes, crops and
resizes them. Prints a line of JSON: samples/s of the loader alone, of training from it, and of
training on a fixed batch.
"""

import argparse
import io
import json
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

WIDTH, HEIGHT = 500, 375
WARMUP = 3  # batches


def write_images(folder: Path, count: int) -> None:
    import numpy as np
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    # Noise of 1/8 of the size, enlarged: as large in JPEG as photographs are.
    for number in range(count):
        pixels = random.integers(0, 256, (HEIGHT // 8, WIDTH // 8, 3), dtype=np.uint8)
        image = Image.fromarray(pixels).resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC)
        image.save(folder / f"{number}.jpg", quality=90)


class Images:
    """A data set for DataLoader: the image of a number as a tensor, and a label."""

    def __init__(self, folder: Path, count: int, size: int, classes: int) -> None:
        self.content = [(folder / f"{number}.jpg").read_bytes() for number in range(count)]
        self.size, self.classes = size, classes

    def __len__(self) -> int:
        return len(self.content)

    def __getitem__(self, number: int) -> tuple[Any, int]:
        import numpy as np
        import torch
        from PIL import Image

        left = number % (WIDTH - HEIGHT)
        with Image.open(io.BytesIO(self.content[number])) as image:
            cropped = image.convert("RGB").crop((left, 0, left + HEIGHT, HEIGHT))
            pixels = np.asarray(cropped.resize((self.size, self.size), Image.Resampling.BILINEAR))
        return torch.from_numpy(pixels.copy()), number % self.classes


def rate(batches: Iterable[Any], batch_size: int, wait: Any, step: Any = None) -> float:
    """Samples/s after the first batches. `step` trains on one; without it, only the loader runs."""
    count, began = 0, 0.0
    for number, batch in enumerate(batches):
        if step:
            step(batch)
        if number == WARMUP - 1:
            wait()
            began = time.perf_counter()
        count += number >= WARMUP
    wait()
    return count * batch_size / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--images", type=int, default=2048)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--passes", type=int, default=3, help="through the images")
    parser.add_argument("--no-cuda", action="store_true")
    given = parser.parse_args()
    import torch
    from pytorch_resnet50 import resnet50

    device = torch.device("cpu" if given.no_cuda else "cuda")
    classes = 1000
    if not (given.folder / f"{given.images - 1}.jpg").exists():
        write_images(given.folder, given.images)
    data = Images(given.folder, given.images, given.image_size, classes)
    network = resnet50(torch, classes).to(device=device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    wait = (lambda: None) if given.no_cuda else torch.cuda.synchronize

    def loaded() -> Iterator[Any]:
        loader = torch.utils.data.DataLoader(
            data, given.batch_size, shuffle=True, num_workers=given.workers, drop_last=True,
            pin_memory=not given.no_cuda, persistent_workers=given.workers > 0,
        )  # fmt: skip
        for _ in range(given.passes):
            yield from loader

    def step(batch: Any) -> None:
        pixels, labels = (part.to(device, non_blocking=True) for part in batch)
        images = pixels.permute(0, 3, 1, 2).float().div(255)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device.type, torch.bfloat16, enabled=not given.no_cuda):
            loss = torch.nn.functional.cross_entropy(network(images), labels)
        loss.backward()
        optimizer.step()

    fixed = [part.to(device) for part in next(loaded())]
    count = given.passes * (given.images // given.batch_size)
    result = {
        "images": given.images,
        "workers": given.workers,
        "batch_size": given.batch_size,
        "loader_samples_per_second": rate(loaded(), given.batch_size, wait),
        "training_from_jpeg_samples_per_second": rate(loaded(), given.batch_size, wait, step),
        "training_on_fixed_batch_samples_per_second": rate(
            [fixed] * count, given.batch_size, wait, step
        ),
    }
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
