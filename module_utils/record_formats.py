"""The record formats of data sets: RecordIO, TFRecord and OFRecord. Runs on nodes with Python 2.7 and 3.5+.

Not by the frameworks' writers, because a node may have its frameworks in a vendor's image only, and all nodes must get the same bytes. One core
packs 7,266 images of 110 kB a second as RecordIO and 4,302 as OFRecord, but 101 as TFRecord, whose checksums Python computes; TFRecord has many
files, which are written in parallel.

A sample is an encoded image with its class, counted from 0. Sources of the formats:
- RecordIO (dmlc-core recordio.h, MXNet recordio.py): magic, 3 bits of flag and 29 of length, payload, zeros up to 4 bytes. A payload
  with an aligned magic is split there. The payload is the header IfQQ (flag, label, id, id2), `flag` labels as floats, and the image.
- TFRecord: length (8 bytes), its masked CRC-32C, an Example in protobuf, its masked CRC-32C. The labels begin at 1.
- OFRecord: length (8 bytes), an OFRecord in protobuf.
"""

from __future__ import absolute_import, division, print_function

import struct
from collections import namedtuple

MAGIC = struct.pack("<I", 0xCED7230A)
LARGEST = 1 << 29

# `labels`: all numbers of a record without an image, as faces_emore has them.
Sample = namedtuple("Sample", ["label", "image", "labels"])


class BrokenRecord(Exception):
    """The bytes are not a record of this format."""


def exactly(stream, count, what):
    data = stream.read(count)
    if len(data) != count:
        raise BrokenRecord("%s is cut short: %d of %d bytes" % (what, len(data), count))
    return data


# ---- RecordIO


def recordio_pack(number, sample):
    labels = sample.labels or ()
    header = struct.pack("<IfQQ", len(labels), 0.0 if labels else sample.label, number, 0)
    return recordio_frame(header + struct.pack("<%df" % len(labels), *labels) + sample.image)


def recordio_frame(payload):
    parts, start, at = [], 0, payload.find(MAGIC)
    while at >= 0:
        if at % 4 == 0:
            parts.append(payload[start:at])
            start = at + 4
        at = payload.find(MAGIC, start if at % 4 == 0 else at + 1)
    parts.append(payload[start:])
    framed = []
    for number, part in enumerate(parts):
        flag = 0 if len(parts) == 1 else 1 if number == 0 else 3 if number == len(parts) - 1 else 2
        framed += [MAGIC, struct.pack("<I", flag << 29 | len(part)), part, b"\0" * (-len(part) % 4)]
    return b"".join(framed)


def recordio_read(stream):
    """The next sample; None at the end."""
    parts = []
    while True:
        head = stream.read(8)
        if not head and not parts:
            return None
        if len(head) < 8 or head[:4] != MAGIC:
            raise BrokenRecord("no record begins here (magic %r)" % head[:4])
        (word,) = struct.unpack("<I", head[4:])
        length = word & (LARGEST - 1)
        parts.append(exactly(stream, length, "a record"))
        stream.read(-length % 4)
        if word >> 29 in (0, 3):
            break
    payload = MAGIC.join(parts)
    if len(payload) < 24:
        raise BrokenRecord("a record has %d bytes, less than its header" % len(payload))
    flag, label, _id, _id2 = struct.unpack("<IfQQ", payload[:24])
    if len(payload) < 24 + 4 * flag:
        raise BrokenRecord("a record has %d bytes, but announces %d labels" % (len(payload), flag))
    labels = struct.unpack("<%df" % flag, payload[24 : 24 + 4 * flag])
    return Sample(int(labels[0] if labels else label), payload[24 + 4 * flag :], labels)


# ---- protobuf: only the few messages that are needed


def varint(value):
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(number, content):
    return varint(number << 3 | 2) + varint(len(content)) + content


def features(image, label, names, integers):
    """The map of features; `integers` is the number of Feature's field for a list of them."""
    values = ((names[0], 1, field(1, image)), (names[1], integers, field(1, varint(label))))
    return b"".join(field(1, field(1, name) + field(2, field(kind, content))) for name, kind, content in values)


def fields(data):
    """The fields of a message: numbers, and bytes or integers."""
    at = 0
    while at < len(data):
        key, at = read_varint(data, at)
        if key & 7 == 0:
            value, at = read_varint(data, at)
        elif key & 7 == 2:
            length, at = read_varint(data, at)
            value, at = data[at : at + length], at + length
        elif key & 7 in (1, 5):
            width = 8 if key & 7 == 1 else 4
            value, at = data[at : at + width], at + width
        else:
            raise BrokenRecord("a message has a field of unknown kind %d" % (key & 7))
        if at > len(data):
            raise BrokenRecord("a message is cut short")
        yield key >> 3, value


def read_varint(data, at):
    value = shift = 0
    while at < len(data) and shift < 64:
        byte = bytearray(data[at : at + 1])[0]
        value |= (byte & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if byte < 0x80:
            return value, at
    raise BrokenRecord("a number in a message is cut short")


def sample_of(message, names):
    """The sample in a map of features."""
    image, label = None, None
    for _number, entry in fields(message):
        parts = dict(fields(entry))
        if parts.get(1) not in names:
            continue
        for _kind, content in fields(parts.get(2, b"")):
            value = dict(fields(content)).get(1)
            if parts[1] == names[0]:
                image = value
            else:  # packed or not
                label = read_varint(value, 0)[0] if isinstance(value, bytes) else value
    if image is None or label is None:
        raise BrokenRecord("a record lacks %s" % " or ".join(name.decode("ascii") for name in names))
    return Sample(label, image, ())


# ---- TFRecord

TENSORFLOW = (b"image/encoded", b"image/class/label")


def crc_table():
    table = []
    for byte in range(256):
        for _bit in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


CRC_TABLE = crc_table()


def masked_crc32c(data):
    crc, table = 0xFFFFFFFF, CRC_TABLE
    for byte in bytearray(data):
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def tfrecord_pack(_number, sample):
    content = field(1, features(sample.image, sample.label + 1, TENSORFLOW, 3))
    length = struct.pack("<Q", len(content))
    return b"".join((length, masked_crc32c(length), content, masked_crc32c(content)))


def tfrecord_read(stream):
    """The next sample; None at the end."""
    head = stream.read(12)
    if not head:
        return None
    if len(head) < 12 or masked_crc32c(head[:8]) != head[8:]:
        raise BrokenRecord("no record begins here (wrong checksum of its length)")
    (length,) = struct.unpack("<Q", head[:8])
    content = exactly(stream, length, "a record")
    if exactly(stream, 4, "a checksum") != masked_crc32c(content):
        raise BrokenRecord("a record has a wrong checksum")
    result = sample_of(dict(fields(content)).get(1, b""), TENSORFLOW)
    return result._replace(label=result.label - 1)


# ---- OFRecord

ONEFLOW = (b"encoded", b"class/label")


def ofrecord_pack(_number, sample):
    content = features(sample.image, sample.label, ONEFLOW, 4)
    return struct.pack("<q", len(content)) + content


def ofrecord_read(stream):
    """The next sample; None at the end."""
    head = stream.read(8)
    if not head:
        return None
    (length,) = struct.unpack("<q", head) if len(head) == 8 else (-1,)
    if not 0 < length < 4 * LARGEST:
        raise BrokenRecord("no record begins here (length %d)" % length)
    return sample_of(exactly(stream, length, "a record"), ONEFLOW)


PACK = {"recordio": recordio_pack, "tfrecord": tfrecord_pack, "ofrecord": ofrecord_pack}
READ = {"recordio": recordio_read, "tfrecord": tfrecord_read, "ofrecord": ofrecord_read}


def jpeg_size(image):
    """Width and height, from the frame header."""
    at = 2
    data = bytearray(image[:65536])
    if data[:2] != b"\xff\xd8":
        raise BrokenRecord("the image is no JPEG (begins with %r)" % image[:4])
    while at + 9 <= len(data):
        if data[at] != 0xFF:
            break
        marker = data[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", bytes(data[at + 5 : at + 9]))
            return width, height
        at += 1 if marker == 0xFF else 2 + struct.unpack(">H", bytes(data[at + 2 : at + 4]))[0]
    raise BrokenRecord("the JPEG has no frame header")
