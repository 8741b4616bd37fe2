"""Read the fingerprints of public keys from their packets (RFC 4880), because bare nodes have no gpg."""

from __future__ import absolute_import, division, print_function

import base64
import hashlib
import struct

ARMOR = b"-----BEGIN PGP PUBLIC KEY BLOCK-----"
ARMOR_END = b"-----END PGP PUBLIC KEY BLOCK-----"
PUBLIC_KEY, SECRET_KEY, SECRET_SUBKEY = 6, 5, 7


def crc24(data):
    crc = 0xB704CE
    for byte in bytearray(data):
        crc ^= byte << 16
        for _bit in range(8):
            crc <<= 1
            if crc & 0x1000000:
                crc ^= 0x1864CFB
    return crc


def dearmored(data):
    """The binary form of a key file, armoured or not; ValueError if the armour is damaged."""
    if ARMOR not in data:
        return data
    binary = b""
    rest = data
    while ARMOR in rest:
        block, end, rest = rest.partition(ARMOR)[2].partition(ARMOR_END)
        if not end:
            raise ValueError("its armour has no end; the file is incomplete")
        lines = [line.strip() for line in block.splitlines()]
        lines = lines[lines.index(b"", 1) + 1 :] if b"" in lines[1:] else lines
        sums = [line[1:] for line in lines if line.startswith(b"=")]
        body = b"".join(line for line in lines if line and not line.startswith(b"="))
        try:
            decoded = base64.b64decode(body)
            wanted = struct.unpack(">I", b"\0" + base64.b64decode(sums[0]))[0] if sums else None
        except (TypeError, ValueError, struct.error):
            raise ValueError("its armour is damaged")
        if wanted is not None and crc24(decoded) != wanted:
            raise ValueError("its armour does not match its checksum")
        binary += decoded
    return binary


def armored(binary):
    """A key file for programs that read no binary one."""
    body = base64.b64encode(binary)
    lines = [body[at : at + 64] for at in range(0, len(body), 64)]
    total = base64.b64encode(struct.pack(">I", crc24(binary))[1:])
    return b"\n".join([ARMOR, b""] + lines + [b"=" + total, ARMOR_END, b""])


def packets(data):
    """(tag, body) of each packet; ValueError for incomplete or other data."""
    data, at = bytearray(data), 0
    while at < len(data):
        head = data[at]
        if not head & 0x80:
            raise ValueError("it contains data other than OpenPGP packets")
        try:
            if head & 0x40:
                tag, first = head & 0x3F, data[at + 1]
                if first < 192:
                    length, at = first, at + 2
                elif first < 224:
                    length, at = ((first - 192) << 8) + data[at + 2] + 192, at + 3
                elif first == 255:
                    length, at = struct.unpack(">I", bytes(data[at + 2 : at + 6]))[0], at + 6
                else:
                    raise ValueError("it has a packet of partial length, which a key cannot have")
            else:
                tag, kind = (head >> 2) & 0x0F, head & 3
                if kind == 3:
                    raise ValueError("it has a packet of unknown length, which a key cannot have")
                size = 1 << kind
                length = 0
                for byte in data[at + 1 : at + 1 + size]:
                    length = (length << 8) + byte
                at += 1 + size
        except (IndexError, struct.error):
            raise ValueError("it is incomplete")
        if at + length > len(data):
            raise ValueError("it is incomplete")
        yield tag, bytes(data[at : at + length])
        at += length


def fingerprints(data):
    """Fingerprints of the primary keys in a binary key file, in their order.

    All of them matter, because apt accepts a signature by any key in the keyring.
    """
    primary = []
    for tag, body in packets(data):
        if tag in (SECRET_KEY, SECRET_SUBKEY):
            raise ValueError("it contains a secret key")
        if tag == PUBLIC_KEY:
            if bytearray(body)[:1] != bytearray([4]):
                raise ValueError("it contains a key with a version other than 4")
            digest = hashlib.sha1(b"\x99" + struct.pack(">H", len(body)) + body)
            primary.append(digest.hexdigest().upper())
    if not primary:
        raise ValueError("it contains no public key")
    return primary


def key_problem(data, wanted):
    """The reason why a key file has keys other than those with these fingerprints, or is invalid; None if it is right."""
    wanted = set(name.replace(" ", "").upper() for name in wanted)
    try:
        present = fingerprints(dearmored(data))
    except ValueError as error:
        return "not a public key file: %s" % error
    if set(present) <= wanted:
        return None
    return "expected fingerprint %s, found %s" % (" or ".join(sorted(wanted)), ", ".join(present))
