"""Files that are read and written as a whole, for modules that run as root where only root writes."""

from __future__ import absolute_import, division, print_function

import errno
import io
import os
import stat

MAX_BYTES = 1 << 24
# For `sh -c`, with a folder as its argument: the SELinux labels of its place, because sshd, for one, reads no key file with a foreign
# label. Does nothing on a kernel without SELinux.
RELABEL = 'test ! -e /sys/fs/selinux/enforce || PATH="$PATH:/usr/sbin:/sbin" restorecon -R "$1"'


def read_bytes(path):
    """Content of a file; None if it does not exist. Refuses devices, FIFOs and huge files."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        if error.errno == errno.ENOENT:
            return None
        raise
    with io.open(handle, "rb") as stream:
        status = os.fstat(stream.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_BYTES:
            raise OSError(errno.EINVAL, "not a regular file of at most %d bytes" % MAX_BYTES)
        return stream.read()


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


def around_block(text, marker):
    """(lines before a marked block, its lines, lines after it); ValueError if its markers do not match."""
    begin, end, lines = "# BEGIN " + marker, "# END " + marker, text.splitlines()
    starts = [index for index, line in enumerate(lines) if line.strip() == begin]
    ends = [index for index, line in enumerate(lines) if line.strip() == end]
    if not starts and not ends:
        return lines, [], []
    if len(starts) != 1 or len(ends) != 1 or ends[0] < starts[0]:
        raise ValueError("expected one line '%s' followed by one '%s', found another number or order of markers" % (begin, end))
    return lines[: starts[0]], lines[starts[0] + 1 : ends[0]], lines[ends[0] + 1 :]


def with_block(before, block, behind, marker):
    """The text of these lines; without the block, and its markers, if it is empty."""
    lines = before + (["# BEGIN " + marker] + block + ["# END " + marker] if block else []) + behind
    return "".join(line + "\n" for line in lines)


def difference(header, before, after):
    """An entry of a module's diff."""
    return {"before_header": header, "after_header": header, "before": before, "after": after}
