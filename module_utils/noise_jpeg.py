"""Synthetic JPEGs that cost as much to read and to decode as photographs. Runs on nodes with Python 2.7 and 3.5+.

Pillow encodes 384 such images (500 x 375) a second on one core, this module makes 10,475: a set like ImageNet takes 2 minutes of a core
instead of an hour. Parts of a JPEG between restart markers can be decoded on their own: so a few hundred such parts are encoded once, from random coefficients, and every image is a new sequence of them. An image is a valid
baseline JPEG (4:2:0) with as many bits per pixel as photographs, which is what reading and decoding cost.
"""

from __future__ import absolute_import, division, print_function

import binascii
import random
import struct

try:
    from math import gcd
except ImportError:  # Python 2
    from fractions import gcd

PARTS = 384
# Huffman tables of this file's own: codes of 3 and 4 bits, of which the one of all ones is not used.
DC_SIZES = list(range(5))
AC_SYMBOLS = [0x00] + [run << 4 | size for run in (0, 1) for size in range(1, 6)]
AC_USED = [0x01] * 4 + [0x02] * 4 + [0x03] * 2 + [0x04, 0x11, 0x11, 0x12]
QUANTUM = 6


def bits_of(code, width):
    return format(code, "0%db" % width)


AC_CODE = dict((symbol, bits_of(code, 4)) for code, symbol in enumerate(AC_SYMBOLS))


class NoiseJpegs(object):
    """Images of width x height and about `mean_bytes`; the same seed gives the same images under every Python."""

    def __init__(self, width, height, mean_bytes, seed):
        self.sizes = sorted({(width, height), (height, width)}, reverse=True)
        across, down = -(-width // 16), -(-height // 16)
        self.interval = gcd(across, down)
        self.count = across * down // self.interval
        self.heads = [self.head(*size) for size in self.sizes]
        wanted = (mean_bytes - len(self.heads[0]) - 2.0) / self.count - 2
        generator = random.Random(seed)
        # The parts' size follows from the budget of bits, but for stuffing and rounding: correct it by a first sample.
        budget = wanted * 8 / self.interval / 5
        sample = [len(self.part(generator, budget)) for _ in range(32)]
        budget *= wanted / (float(sum(sample)) / len(sample))
        self.parts = [self.part(generator, budget) for _ in range(PARTS)]

    def image(self, generator):
        """The next image; `generator` is a random.Random."""
        # random() alone gives the same numbers under Python 2 and 3. Three photographs of four are wide.
        below = generator.random
        out = [self.heads[0 if below() < 0.75 else -1]]
        for number in range(self.count):
            out.append(self.parts[int(below() * PARTS)])
            out.append(RESTARTS[number % 8])
        out[-1] = b"\xff\xd9"
        return b"".join(out)

    def part(self, generator, budget):
        """One restart interval of random coefficients: four blocks of luminance with the budget of bits, two of colour with half of it."""
        below, out = generator.random, []
        spread = 0.6 + 0.8 * below()
        for block in range(6 * self.interval):
            size = DC_SIZES[int(below() * len(DC_SIZES))]
            out.append(bits_of(size, 3))
            if size:
                out.append(bits_of(int(below() * (1 << size)), size))
            left, position = budget * spread * (1 if block % 6 < 4 else 0.5), 1
            while left > 4:
                symbol = AC_USED[int(below() * len(AC_USED))]
                if position + (symbol >> 4) > 63:
                    break
                position, size = position + (symbol >> 4) + 1, symbol & 15
                out += [AC_CODE[symbol], bits_of(int(below() * (1 << size)), size)]
                left -= 4 + size
            if position < 64:
                out.append(AC_CODE[0])
        text = "".join(out)
        text += "1" * (-len(text) % 8)
        data = binascii.unhexlify(("%x" % int(text, 2)).zfill(len(text) // 4))
        return data.replace(b"\xff", b"\xff\x00")

    def head(self, width, height):
        return b"".join(
            (
                b"\xff\xd8",
                segment(0xE0, b"JFIF\0\1\1\0\0\1\0\1\0\0"),
                segment(0xDB, bytes(bytearray([0] + [QUANTUM] * 64))),
                segment(0xC0, struct.pack(">BHHB", 8, height, width, 3) + b"\1\x22\0\2\x11\0\3\x11\0"),
                segment(0xC4, huffman(0x00, 3, DC_SIZES)),
                segment(0xC4, huffman(0x10, 4, AC_SYMBOLS)),
                segment(0xDD, struct.pack(">H", self.interval)),
                segment(0xDA, b"\3\1\0\2\0\3\0\0\x3f\0"),
            )
        )


RESTARTS = [b"\xff" + struct.pack("B", 0xD0 + number) for number in range(8)]


def segment(marker, content):
    return struct.pack(">BBH", 0xFF, marker, len(content) + 2) + content


def huffman(kind, width, symbols):
    counts = [len(symbols) if length == width else 0 for length in range(1, 17)]
    return bytes(bytearray([kind] + counts + symbols))
