# -*- coding: utf-8 -*-
"""Read and write files in a directory that others may have tampered with: never through a link or a FIFO."""

from __future__ import absolute_import, division, print_function

__metaclass__ = type

import base64
import hashlib
import os
import stat
import zlib

PIECE = 1 << 20
KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
    stat.S_IFLNK: "a symbolic link",
}


class Refused(Exception):
    """Says which file cannot be read, and why."""


def discard(path):
    try:
        os.unlink(path)
    except OSError:
        pass  # most often there is none


def create(path):
    """A descriptor of a new, empty file; whatever had the name before is removed, not written to."""
    discard(path)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)


def append(path, data):
    """Append to a file, without waiting for the reader of a FIFO."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        os.write(descriptor, data)
    finally:
        os.close(descriptor)


class OwnedFile(object):
    """A regular file of this user's own, open for reading; raises Refused for anything else.

    Neither a symbolic link nor another name of a file is read, and opening a FIFO does not wait for its writer.
    """

    def __init__(self, path, limit=None):
        self.path = path
        try:
            self.descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY)
        except OSError as error:
            raise Refused("%s is not readable: %s" % (path, self.why_not(error)))
        try:
            found = os.fstat(self.descriptor)
            self.size, self.identity = found.st_size, "%d:%d" % (found.st_dev, found.st_ino)
            if not stat.S_ISREG(found.st_mode):
                raise Refused("%s is %s, not a regular file" % (path, KINDS.get(stat.S_IFMT(found.st_mode), "something else")))
            if found.st_uid != os.geteuid():
                raise Refused("%s belongs to the user id %d, not to %d" % (path, found.st_uid, os.geteuid()))
            if found.st_nlink > 1:  # 0: it was replaced just now
                raise Refused("%s has %d names (hard links), not one" % (path, found.st_nlink))
            if limit is not None and self.size > limit:
                raise Refused("%s has %d bytes, more than the limit of %d" % (path, self.size, limit))
        except Refused:
            os.close(self.descriptor)
            raise

    def why_not(self, error):
        try:
            kind = KINDS.get(stat.S_IFMT(os.lstat(self.path).st_mode))
        except OSError:
            kind = None
        return "it is %s, not a regular file" % kind if kind else os.strerror(error.errno)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.descriptor)

    def pieces(self, offset, count):
        """So many bytes from there on, a piece at a time; raises Refused where the file ends before."""
        os.lseek(self.descriptor, offset, os.SEEK_SET)
        while count:
            piece = os.read(self.descriptor, min(count, PIECE))
            if not piece:
                raise Refused("%s was truncated while it was read" % self.path)
            count -= len(piece)
            yield piece

    def read(self, offset, count):
        return b"".join(self.pieces(offset, count))

    def packed(self, offset, count):
        """So many bytes from there on, compressed, as text."""
        return base64.b64encode(zlib.compress(self.read(offset, count), 1)).decode("ascii")

    def sha256(self):
        digest = hashlib.sha256()
        for piece in self.pieces(0, self.size):
            digest.update(piece)
        return digest.hexdigest()


def size_and_end(path, count):
    """The size of a file and its last bytes; 0 and nothing of one that is refused."""
    try:
        with OwnedFile(path) as source:
            count = min(count, source.size)
            return source.size, source.read(source.size - count, count)
    except (Refused, IOError, OSError):
        return 0, b""


def described(path, limit, at_once):
    """What a controller needs to fetch a file: its size, identity and digest, and its content if it has at most `at_once` bytes; or why it is
    refused."""
    try:
        with OwnedFile(path, limit) as source:
            found = {"size": source.size, "identity": source.identity, "sha256": source.sha256()}
            if source.size <= at_once:
                found["content"] = source.packed(0, source.size)
            return found
    except Refused as error:
        return {"refused": str(error)}
    except (IOError, OSError) as error:
        return {"refused": "%s is not readable: %s" % (path, error)}
