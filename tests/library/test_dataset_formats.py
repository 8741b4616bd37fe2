"""The record formats of data sets, against bytes that MXNet, TensorFlow and protobuf wrote."""

import io
import random
from typing import Any

import noise_jpeg
import pytest
import record_formats
from PIL import Image
from record_formats import PACK, READ, BrokenRecord, Sample

MAGIC = b"\x0a\x23\xd7\xce"
# mxnet 1.9.1, recordio.MXIndexedRecordIO: an image with the magic in aligned and other places, then
# IRHeader(2, [131, 171], 1, 0) without an image.
RECORDIO = bytes.fromhex(
    "0a23d7ce1c000020000000000000404000000000000000000000000000000000616263640a23d7ce0b0000606566"
    "670a23d7ce0a23d7ce000a23d7ce2000000002000000000000000100000000000000000000000000000000000343"
    "00002b43"
)
RECORDS = [Sample(3, b"abcd" + MAGIC + b"efg" + MAGIC + MAGIC, ()), Sample(131, b"", (131, 171))]
# tensorflow 2.15.1, tf.io.TFRecordWriter: a tf.train.Example with the label 301.
TFRECORD = bytes.fromhex(
    "3c00000000000000c8b7a3520a3a0a1b0a11696d6167652f636c6173732f6c6162656c12061a040a02ad020a1b0a0d"
    "696d6167652f656e636f646564120a0a080a06ffd86a7065672b0ecd9c"
)
# protobuf 4.25.9 with the messages of oneflow's record.proto, and struct.pack("q", length).
OFRECORD = bytes.fromhex(
    "3e000000000000000a150a0b636c6173732f6c6162656c120622040a02ac020a150a07656e636f646564120a0a080a"
    "06ffd86a7065670a0e0a057769647468120522030a0107"
)
IMAGE = Sample(300, b"\xff\xd8jpeg", ())


def read(form: str, data: bytes) -> list[Any]:
    stream = io.BytesIO(data)
    return list(iter(lambda: READ[form](stream), None))


def test_recordio_is_written_and_read_as_mxnet_does() -> None:
    written = [PACK["recordio"](number, sample) for number, sample in enumerate(RECORDS)]
    assert b"".join(written) == RECORDIO
    assert read("recordio", RECORDIO) == RECORDS


def test_tfrecord_is_read_as_tensorflow_writes_it() -> None:
    assert read("tfrecord", TFRECORD) == [IMAGE]
    # TensorFlow sorts the features; their order has no meaning.
    assert len(PACK["tfrecord"](0, IMAGE)) == len(TFRECORD)
    assert read("tfrecord", PACK["tfrecord"](0, IMAGE)) == [IMAGE]
    # RFC 3720, appendix B.4: the CRC-32C of 32 bytes of zeros is aa 36 91 8a.
    unmasked = (
        int.from_bytes(record_formats.masked_crc32c(bytes(32)), "little") - 0xA282EAD8
    ) % 2**32
    assert ((unmasked << 15 | unmasked >> 17) % 2**32).to_bytes(4, "little").hex() == "aa36918a"


def test_ofrecord_is_read_as_protobuf_writes_it() -> None:
    assert read("ofrecord", OFRECORD) == [IMAGE]
    assert read("ofrecord", PACK["ofrecord"](0, IMAGE)) == [IMAGE]


@pytest.mark.parametrize(
    ("form", "data"), [("recordio", RECORDIO), ("tfrecord", TFRECORD), ("ofrecord", OFRECORD)]
)
def test_damage_is_reported(form: str, data: bytes) -> None:
    for cut in (1, 11, len(data) - 1):
        with pytest.raises(BrokenRecord):
            read(form, data[:cut])
    with pytest.raises(BrokenRecord):
        read(form, b"\xff" * 64)


def test_changed_byte_fails_the_checksum() -> None:
    with pytest.raises(BrokenRecord, match="wrong checksum"):
        read("tfrecord", TFRECORD[:20] + b"\0" + TFRECORD[21:])


@pytest.mark.parametrize(
    ("width", "height", "mean"), [(500, 375, 110_000), (112, 112, 4_300), (100, 80, 5_000)]
)
def test_noise_is_valid_jpeg_of_the_mean_size(width: int, height: int, mean: int) -> None:
    noise = noise_jpeg.NoiseJpegs(width, height, mean, seed=7)
    generator = random.Random(1)  # noqa: S311
    images = [noise.image(generator) for _ in range(60)]
    assert sum(map(len, images)) / 60 == pytest.approx(mean, rel=0.05)
    assert len(set(images)) == 60
    shapes = set()
    for data in images[:20]:
        image = Image.open(io.BytesIO(data))
        image.load()
        assert image.size == record_formats.jpeg_size(data)
        shapes.add(image.size)
        darkest, brightest = image.convert("L").getextrema()
        assert brightest - darkest > 60  # not a flat picture
    assert shapes == {(width, height), (height, width)}
