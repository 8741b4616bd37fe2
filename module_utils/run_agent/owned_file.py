"""Read and write files safely in a directory that others can write to: never through a link or a FIFO."""

from __future__ import absolute_import, division, print_function

import base64
import hashlib
import json
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
    """A file cannot be read; the message says why."""


def discard(path):
    try:
        os.unlink(path)
    except OSError:
        pass  # usually it does not exist


def create(path):
    """Open a new, empty file and return its descriptor; an existing file is removed, not overwritten."""
    discard(path)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)


def append(path, data):
    """Append to a file without following a link or waiting for a FIFO's reader."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        os.write(descriptor, data)
    finally:
        os.close(descriptor)


def write_whole(path, data):
    """Write a JSON file atomically: a reader sees the old one or the new one, never a part."""
    temporary = path + ".tmp"
    with os.fdopen(create(temporary), "w") as handle:
        json.dump(data, handle)
    os.rename(temporary, path)


def read_whole(path, limit):
    """The content that `write_whole` wrote; None if the file is missing, refused or damaged."""
    try:
        with OwnedFile(path, limit) as source:
            return json.loads(source.read(0, source.size).decode("utf-8"))
    except (Refused, IOError, OSError, ValueError, RuntimeError):  # RuntimeError: nested too deeply
        return None


class OwnedFile(object):
    """A regular file owned by this user, open for reading; raises Refused for anything else.

    Refuses symbolic links and files with several hard links, and does not wait for a FIFO's writer.
    """

    def __init__(self, path, limit=None):
        self.path = path
        try:
            self.descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY)
        except OSError as error:
            raise Refused("%s cannot be read: %s" % (path, self.why_not(error)))
        try:
            status = os.fstat(self.descriptor)
            self.size, self.identity = status.st_size, "%d:%d" % (status.st_dev, status.st_ino)
            if not stat.S_ISREG(status.st_mode):
                raise Refused("%s is %s, not a regular file" % (path, KINDS.get(stat.S_IFMT(status.st_mode), "something else")))
            if status.st_uid != os.geteuid():
                raise Refused("%s belongs to user id %d instead of %d" % (path, status.st_uid, os.geteuid()))
            if status.st_nlink > 1:  # 0 means that it was just replaced
                raise Refused("%s has %d hard links instead of one" % (path, status.st_nlink))
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
        """Yield `count` bytes from `offset` in pieces; raises Refused if the file is shorter."""
        os.lseek(self.descriptor, offset, os.SEEK_SET)
        while count:
            piece = os.read(self.descriptor, min(count, PIECE))
            if not piece:
                raise Refused("%s was truncated while reading it" % self.path)
            count -= len(piece)
            yield piece

    def read(self, offset, count):
        return b"".join(self.pieces(offset, count))

    def packed(self, offset, count):
        """Return `count` bytes from `offset`, compressed and in Base64."""
        return base64.b64encode(zlib.compress(self.read(offset, count), 1)).decode("ascii")

    def sha256(self):
        digest = hashlib.sha256()
        for piece in self.pieces(0, self.size):
            digest.update(piece)
        return digest.hexdigest()


def size_and_end(path, count):
    """The size of a file and its last bytes; 0 and empty if it is refused."""
    try:
        with OwnedFile(path) as source:
            count = min(count, source.size)
            return source.size, source.read(source.size - count, count)
    except (Refused, IOError, OSError):
        return 0, b""


def described(path, limit, at_once):
    """Facts for the controller to fetch a file: its size, identity and digest, and the content up to `at_once` bytes; or the reason for a
    refusal."""
    try:
        with OwnedFile(path, limit) as source:
            description = {"size": source.size, "identity": source.identity, "sha256": source.sha256()}
            if source.size <= at_once:
                description["content"] = source.packed(0, source.size)
            return description
    except Refused as error:
        return {"refused": str(error)}
    except (IOError, OSError) as error:
        return {"refused": "%s cannot be read: %s" % (path, error)}
