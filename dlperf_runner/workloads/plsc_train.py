"""Train PLSC's ArcFace on noise images: the script that its user writes, for the upstream source.

Lies beside PLSC's own example in demo/, and runs on Paddle 1.8. Each process has its share of the
classes, as PLSC does it by default (--parallel model), or all of them (data). The patched PLSC ends
the program behind the line of batch --last-batch; batches count from 0.
"""

import argparse
import sys
from pathlib import Path

from builtin_common import positive

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

IMAGES = 1024  # of repeated noise
# As in the published script: one thread makes the noise, eight pass it on.
THREADS, AHEAD = 8, 5000


def parse_arguments(argv=None):
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--batch-size", type=positive, default=128, help="of each process")
    parser.add_argument("--last-batch", type=positive, default=150)
    parser.add_argument("--log-period", type=positive, default=10, help="a line every n batches")
    parser.add_argument("--image-size", type=positive, default=112, help="pixels a side")
    parser.add_argument("--classes", type=positive, default=85742)
    parser.add_argument("--parallel", choices=["model", "data"], default="model")
    parser.add_argument(
        "--noise",
        choices=["fresh", "repeated"],
        default="fresh",
        help=f"fresh: made for each sample, as published; repeated: the same {IMAGES} images",
    )
    parser.add_argument("--lr", default="auto", help="auto: PLSC's own, 0.1 per 1024 images")
    return parser.parse_args(argv)


# A reader is, as PLSC's own are, a function that gives pairs of image and label.


def fresh_noise(image_size, classes, seed):
    """A reader whose every sample is new. Making it can be what limits the speed."""
    import numpy
    import paddle

    generator = numpy.random.RandomState(seed)

    def reader():
        while True:
            image = generator.normal(size=(3, image_size, image_size))
            yield image, int(generator.randint(classes))

    return paddle.reader.xmap_readers(lambda sample: sample, reader, THREADS, AHEAD)


def repeated_noise(image_size, classes, seed):
    """A reader of samples that are made before the training."""
    import numpy

    generator = numpy.random.RandomState(seed)
    shape = (IMAGES, 3, image_size, image_size)
    images = generator.normal(size=shape).astype(numpy.float32)
    labels = generator.randint(0, classes, IMAGES)

    def reader():
        while True:
            for image, label in zip(images, labels):  # noqa: B905 for Python 3.7
                yield image, int(label)

    return reader


def main(argv=None):
    arguments = parse_arguments(argv)
    from plsc import Entry

    size = arguments.image_size
    entry = Entry()
    entry.set_train_batch_size(arguments.batch_size)
    entry.set_class_num(arguments.classes)
    entry.set_log_period(arguments.log_period)
    entry.set_with_test(False)
    entry.set_model_save_dir("")
    is_split = arguments.parallel == "model" and entry.num_trainers > 1
    entry.set_loss_type("dist_arcface" if is_split else "arcface")
    entry.set_input_info(
        [
            {"name": "image", "shape": [-1, 3, size, size], "dtype": "float32"},
            {"name": "label", "shape": [-1, 1], "dtype": "int64"},
        ]
    )
    if arguments.lr != "auto":
        # PLSC multiplies it by images per batch / 1024.
        entry.lr = float(arguments.lr) * 1024 / entry.global_train_batch_size
    print(f"Set noise to {arguments.noise}.", flush=True)  # as PLSC states its settings
    noise = fresh_noise if arguments.noise == "fresh" else repeated_noise
    entry.train_reader = noise(size, arguments.classes, seed=entry.trainer_id)
    # The patched PLSC stops only at batches of which it prints a line.
    entry.last_batch = arguments.last_batch // arguments.log_period * arguments.log_period
    entry.train()


if __name__ == "__main__":
    main()
