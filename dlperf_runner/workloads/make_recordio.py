"""Write a RecordIO file of noise images with labels, as MXNet's im2rec does of photographs.

For programs that read their images from a .rec file where there is no data set: what they measure
then includes reading, decoding and augmenting. The same options give the same images.
"""

import argparse
import io
import os
import sys
from pathlib import Path

from builtin_common import positive

# Noise of one pixel's grain makes JPEGs that are several times heavier than photographs.
GRAIN = 4


def parse_arguments(argv=None):
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument(
        "output", type=Path, help="the .rec file; its index is written beside it as .idx"
    )
    parser.add_argument("--images", type=positive, default=1024)
    parser.add_argument("--size", type=positive, default=256, help="pixels a side")
    parser.add_argument("--classes", type=positive, default=1000)
    parser.add_argument("--quality", type=positive, default=90, help="of the JPEGs, at most 95")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args(argv)
    if arguments.output.suffix != ".rec":
        parser.error("output: a name that ends with .rec was expected")
    return arguments


def noise_images(images, size, quality, seed):
    """JPEGs, one after the other."""
    import numpy
    from PIL import Image

    generator = numpy.random.RandomState(seed)
    side = max(1, size // GRAIN)
    for _ in range(images):
        pixels = generator.randint(0, 256, (side, side, 3)).astype(numpy.uint8)
        image = io.BytesIO()
        Image.fromarray(pixels).resize((size, size), Image.BILINEAR).save(
            image, format="JPEG", quality=quality
        )
        yield image.getvalue()


def write(arguments):
    """Both files appear whole, the .rec last: where it is, the data are complete."""
    from mxnet import recordio

    output = arguments.output
    output.parent.mkdir(parents=True, exist_ok=True)
    targets = [output.with_suffix(".idx"), output]
    partial = [target.with_name(f".{target.name}.{os.getpid()}") for target in targets]
    try:
        records = recordio.MXIndexedRecordIO(str(partial[0]), str(partial[1]), "w")
        images = noise_images(arguments.images, arguments.size, arguments.quality, arguments.seed)
        for number, image in enumerate(images):
            header = recordio.IRHeader(0, float(number % arguments.classes), number, 0)
            records.write_idx(number, recordio.pack(header, image))
        records.close()
        for source, target in zip(partial, targets):  # noqa: B905 for Python 3.7
            source.replace(target)
    finally:
        for path in partial:
            if path.exists():
                path.unlink()


def main(argv=None):
    arguments = parse_arguments(argv)
    try:
        write(arguments)
    except OSError as error:
        sys.exit(f"make_recordio: {error}")
    print(f"{arguments.output}: {arguments.images} images of {arguments.size}x{arguments.size}")


if __name__ == "__main__":
    main()
