"""Files that are read and written as a whole, for modules that run as root where only root writes."""

from __future__ import absolute_import, division, print_function

import errno
import io
import os


def read_bytes(path):
    """Content of a file; None if it does not exist."""
    try:
        with io.open(path, "rb") as stream:
            return stream.read()
    except (IOError, OSError) as error:
        if error.errno == errno.ENOENT:
            return None
        raise


def write_whole(path, content, mode):
    temporary = "%s.dlperf-new" % path
    try:
        with io.open(temporary, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, mode)
        os.rename(temporary, path)
    except EnvironmentError:  # such as a full disk
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise


def make_folder(path):
    if not os.path.isdir(path):
        os.makedirs(path, 0o755)


def remove_if_empty(folder):
    try:
        os.rmdir(folder)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST):
            raise


def difference(header, before, after):
    """An entry of a module's diff."""
    return {"before_header": header, "after_header": header, "before": before, "after": after}
