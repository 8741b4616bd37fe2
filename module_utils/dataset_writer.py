"""Writes data sets in record formats, several parts at once. Runs on nodes with Python 2.7 and 3.5+."""

from __future__ import absolute_import, division, print_function, unicode_literals

import collections
import hashlib
import io
import json
import os
import random
import sys

from ansible.module_utils.noise_jpeg import NoiseJpegs
from ansible.module_utils.record_formats import PACK, Sample

# The role writes it into every data set that it made. It names what the set was made of, and the size of each file.
MANIFEST = "dlperf-dataset.json"
IMAGES = (".jpeg", ".jpg")


class Noise(object):
    """Samples of random images. Number `n` is in class `n % classes`, or, with `by_class`, classes are contiguous."""

    def __init__(self, records, classes, width, height, mean_bytes, seed, by_class):
        self.count, self.classes, self.seed, self.by_class = records, classes, seed, by_class
        self.images = NoiseJpegs(width, height, mean_bytes, seed)

    def label(self, number):
        return number * self.classes // self.count if self.by_class else number % self.classes

    def samples(self, numbers):
        for number in numbers:
            # A seed of its own: an image is the same however the set is divided.
            yield Sample(self.label(number), self.images.image(random.Random(self.seed << 40 | number)), ())


class Folder(object):
    """Samples of a folder with one folder of JPEGs per class, as they are, in a random order."""

    def __init__(self, path, seed):
        self.names = sorted(name for name in os.listdir(path) if os.path.isdir(os.path.join(path, name)))
        self.files = [
            (os.path.join(path, name, file), label)
            for label, name in enumerate(self.names)
            for file in sorted(os.listdir(os.path.join(path, name)))
            if file.lower().endswith(IMAGES)
        ]
        self.count, self.classes = len(self.files), len(self.names)
        generator = random.Random(seed)
        order = [(generator.random(), at) for at in range(self.count)]
        self.files = [self.files[at] for _, at in sorted(order)]

    def label(self, number):
        return self.files[number][1]

    def samples(self, numbers):
        for number in numbers:
            path, label = self.files[number]
            with open(path, "rb") as stream:
                image = stream.read()
            if image[:2] != b"\xff\xd8":
                raise ValueError("%s is no JPEG (begins with %r): convert it first" % (path, image[:4]))
            yield Sample(label, image, ())


def parts(count, number):
    """`number` ranges of numbers, as equal as they can be."""
    return [range(part * count // number, (part + 1) * count // number) for part in range(number)]


def write_set(folder, form, files, source, processors, is_faces=False):
    """Write all files of a data set below `folder`."""
    for name in files:
        below = os.path.dirname(os.path.join(folder, name))
        if not os.path.isdir(below):
            os.makedirs(below)
    if form == "recordio":
        write_recordio(os.path.join(folder, files[0]), source, is_faces)
        return
    jobs = [(os.path.join(folder, name), numbers) for name, numbers in zip(files, parts(source.count, len(files)))]

    def write(job):
        path, numbers = job
        with io.open(path, "wb") as stream:
            for number, sample in zip(numbers, source.samples(numbers)):
                stream.write(PACK[form](number, sample))

    in_parallel(write, jobs, processors)


def write_recordio(path, source, is_faces):
    """One file of records and its index: a line of number and offset for each. `is_faces`: as in faces_emore, record 0 says which
    records are identities, and each identity which images it has.

    One process writes it: parts that are joined afterwards would write hundreds of gigabytes twice.
    """
    with io.open(path, "wb") as stream, io.open(os.path.splitext(path)[0] + ".idx", "w") as index:

        def write(number, sample):
            index.write("%d\t%d\n" % (number, stream.tell()))
            stream.write(PACK["recordio"](number, sample))

        if is_faces:
            write(0, Sample(0, b"", (source.count + 1, source.count + 1 + source.classes)))
        for number, sample in enumerate(source.samples(range(source.count)), int(is_faces)):
            write(number, sample)
        if is_faces:
            counts = collections.Counter(map(source.label, range(source.count)))
            begin = 1
            for identity in range(source.classes):
                write(source.count + 1 + identity, Sample(0, b"", (begin, begin + counts[identity])))
                begin += counts[identity]


def in_parallel(work, jobs, processors):
    """Do the work for every job, in as many processes. Raises RuntimeError with the error of one that failed."""
    children = {}
    for first in range(min(processors, len(jobs))):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            status = 1
            try:
                for job in jobs[first::processors]:
                    work(job)
                status = 0
            except BaseException as error:  # the child must end here, whatever happened
                os.write(writing, ("%s: %s" % (type(error).__name__, error)).encode("utf-8")[:4000])
            finally:
                sys.stdout.flush()
                os._exit(status)
        os.close(writing)
        children[child] = reading
    errors = []
    for child, reading in children.items():
        with io.open(reading, "rb") as stream:
            messages = stream.read().decode("utf-8", "replace")
        _pid, status = os.waitpid(child, 0)
        if status:
            errors.append(messages or "a process that writes the data set was killed (status %d)" % status)
    if errors:
        raise RuntimeError(errors[0])


# ---- what a folder holds


def sizes(folder):
    """The size of every file below the folder, but for the manifest, by its name."""
    result = {}
    for where, _folders, names in os.walk(folder, followlinks=True):
        for name in names:
            path = os.path.join(where, name)
            if os.path.relpath(path, folder) != MANIFEST and os.path.isfile(path):
                result[os.path.relpath(path, folder)] = os.stat(path).st_size
    return result


def sizes_of(folder, names):
    """The sizes of these files, of those that exist. A folder of the operator may hold millions of others."""
    paths = [(name, os.path.join(folder, name)) for name in names]
    return dict((name, os.path.getsize(path)) for name, path in paths if os.path.isfile(path))


def digest(result):
    return hashlib.sha256(json.dumps(sorted(result.items())).encode("utf-8")).hexdigest()[:16]


def read_manifest(folder):
    """None if the role did not make the data set."""
    try:
        with io.open(os.path.join(folder, MANIFEST), encoding="utf-8") as stream:
            return json.load(stream)
    except (IOError, OSError, ValueError):
        return None


def write_manifest(folder, made_of, **more):
    document = dict(more, made_of=made_of, files=sizes(folder))
    with io.open(os.path.join(folder, MANIFEST), "wb") as stream:
        stream.write(json.dumps(document, indent=1, sort_keys=True).encode("utf-8"))
