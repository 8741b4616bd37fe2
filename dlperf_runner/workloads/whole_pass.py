"""Repeat a data set until one pass over it is as long as a run: for upstream's train_horovod.py.

Each pass starts gluon's DataLoader anew, and then nothing is read while the device computes. A
pass over the published data set, ImageNet, is longer than the published runs. Runs on Python 3.7.
"""

READ_AHEAD = 2  # batches that the DataLoader has under way for each of its workers


class Repeated:
    """The first `length` samples of a data set that is read over and over."""

    def __init__(self, samples, length):
        if not len(samples):
            raise ValueError("the data set has no samples")
        self.samples = samples
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, number):
        return self.samples[number % len(self.samples)]


def whole_pass(samples, batches, batch_size, processes, workers):
    """The data set with so many batches for each process, and those that its `workers` read ahead
    at the end of the run: repeated only if it is smaller."""
    length = processes * batch_size * (batches + READ_AHEAD * workers)
    return samples if len(samples) >= length else Repeated(samples, length)
