"""Select the contents of a node's image and write its archive.

The image contains only an allow-list of files: unmodified files of packages (according to dpkg's lists and checksums), folders named by the
caller, and the few names below. No other file of the node is included. In addition, only files that all users on the node can read are packed.

`podman build` cannot do this: a Containerfile copies by name, and here dpkg's checksum of each file decides. It would replace only the few
lines of `write`, and with its --timestamp, which the same digest needs, all files get that time (podman-build(1)): Python would compile all
modules anew at every start.
"""

from __future__ import absolute_import, division, print_function

import contextlib
import errno
import glob
import hashlib
import io
import json
import os
import platform
import re
import stat
import struct
import tarfile

FORMAT = "2"
TAG = "node"
LABEL = "dlperf.contents"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
# Packaged files that a container does not need.
UNWANTED = (
    "boot/", "lib/firmware/", "lib/modules/", "usr/lib/firmware/", "usr/lib/modules/", "usr/share/doc/", "usr/share/locale/",
    "usr/share/man/", "usr/src/",
)  # fmt: skip
# Links into /usr on a distribution with merged /usr; dpkg's lists may still use the short paths.
MERGED = ("bin", "lib", "lib32", "lib64", "libo32", "libx32", "sbin")
CERTIFICATES = "etc/ssl/certs/ca-certificates.crt"
CERTIFICATE = b"-----BEGIN CERTIFICATE-----\n[A-Za-z0-9+/=\n]+-----END CERTIFICATE-----\n"
# Accounts that every distribution has. Inside the container, processes run as root; outside, as the benchmark user.
WRITTEN = {
    "etc/passwd": b"root:*:0:0:root:/root:/bin/sh\nnobody:*:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    "etc/group": b"root:*:0:\ntty:*:5:\nnogroup:*:65534:\n",
    "etc/nsswitch.conf": b"passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n",
}
# Instead of checksums: any content is allowed, or only a symbolic link.
ANY, LINK = "any", "link"
# The file is missing or not accessible, or is now a link.
ABSENT = (errno.ENOENT, errno.EACCES, errno.ENOTDIR, errno.ELOOP)


@contextlib.contextmanager
def rights_of(user):
    """Access files with the permissions of a user (an entry of pwd) instead of root's. Files that the user may not read cannot get
    into the archive, and a link made by the user cannot mislead root."""
    if os.geteuid() != 0 or user.pw_uid == 0:
        yield
        return
    group, groups = os.getegid(), os.getgroups()
    os.setgroups([])
    os.setegid(user.pw_gid)
    os.seteuid(user.pw_uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(group)
        os.setgroups(groups)


def lines(path):
    """Lines of a file as native strings; empty if it does not exist."""
    try:
        with open(path, "rb") as stream:
            data = stream.read()
    except (IOError, OSError) as error:
        if error.errno != errno.ENOENT:
            raise
        return []
    return (data if str is bytes else os.fsdecode(data)).split("\n")


def canonical(root, path):
    """The name of a packaged path: relative, and below usr on a distribution with merged /usr."""
    name = path.lstrip("/")
    top = name.split("/", 1)[0]
    if top in MERGED and top != name and os.path.islink(os.path.join(root, top)):
        return "usr/" + name
    return name


def shipped(root):
    """MD5 checksums of packaged files, by name; empty for folders and links."""
    info, named, sums = os.path.join(root, "var/lib/dpkg"), set(), {}
    for path in glob.glob(os.path.join(info, "info", "*.list")):
        named.update(line for line in lines(path) if line not in ("", "/."))
    for path in glob.glob(os.path.join(info, "info", "*.md5sums")):
        for line in lines(path):
            sums.setdefault("/" + line[34:], set()).add(line[:32])
    # For configuration files dpkg has the packaged checksum, so an edited file differs.
    for line in lines(os.path.join(info, "status")):
        checksums = re.match(r" (/.+?) ([0-9a-f]{32})(?: [a-z-]+)*$", line)
        if checksums:
            sums.setdefault(checksums.group(1), set()).add(checksums.group(2))
    diverted = lines(os.path.join(info, "diversions"))
    for original, moved in zip(diverted[::3], diverted[1::3]):
        if original in named:
            named.add(moved)
            sums.setdefault(moved, set()).update(sums.get(original, ()))
    checksums = {}
    for path in named:
        checksums.setdefault(canonical(root, path), set()).update(sums.get(path, ()))
    return checksums


def links(root):
    """Names that are included if they are symbolic links, which have no content: merged folders, the time zone, the chosen
    alternatives, and OpenSSL's names of certificates."""
    names = list(MERGED) + ["etc/localtime"]
    for path in glob.glob(os.path.join(root, "var/lib/dpkg/alternatives/*")):
        # auto / link / slave / its link / ... / an empty line
        text = lines(path)
        text = text[1 : text.index("")] if "" in text else []
        for name, link in zip([os.path.basename(path)] + text[1::2], text[::2]):
            names += ["etc/alternatives/" + name, canonical(root, link)]
    certificates = os.path.join(root, os.path.dirname(CERTIFICATES))
    if os.path.isdir(certificates):
        names += [os.path.join(os.path.dirname(CERTIFICATES), name) for name in os.listdir(certificates)]
    return names


def folder(root, top):
    """Names of a folder and of everything below it that all users can reach; links are not followed."""
    pending = [top]
    while pending:
        name = pending.pop()
        yield name
        path = os.path.join(root, name)
        mode = os.lstat(path).st_mode
        if stat.S_ISDIR(mode) and mode & 0o5 == 0o5:
            pending += [os.path.join(name, entry) for entry in os.listdir(path)]


def compiled(root, sources):
    """Names of compiled files of packaged Python modules, each with its source and the source's checksums."""
    for place in set(os.path.dirname(name) for name in sources if name.endswith(".py")):
        cache = os.path.join(place, "__pycache__")
        if os.path.isdir(os.path.join(root, cache)):
            for entry in os.listdir(os.path.join(root, cache)):
                source = os.path.join(place, entry.split(".")[0] + ".py")
                if entry.endswith(".pyc") and sources.get(source):
                    yield os.path.join(cache, entry), (source, sources[source])


def allowed(root, folders):
    """Names that may be packed, with their condition: checksums, a source and its checksums, ANY or LINK."""
    packaged = shipped(root)
    conditions = dict.fromkeys(links(root), LINK)
    conditions.update(compiled(root, packaged))
    conditions.update(packaged)
    conditions["etc/ld.so.cache"] = ANY
    for path in folders:
        top = path.strip("/")
        # A packaged folder can also contain other files.
        if top in conditions or not os.path.isdir(os.path.join(root, top)):
            continue
        for name in folder(root, top):
            conditions[name] = ANY
    for name in list(conditions):
        while os.path.dirname(name) and os.path.dirname(name) not in conditions:
            name = os.path.dirname(name)
            conditions[name] = set()
    return dict((name, condition) for name, condition in conditions.items() if not name.startswith(UNWANTED))


def is_reachable(root, name, seen):
    """True if all parents of a name are folders that all users may enter; `seen` caches the answers."""
    parent = os.path.dirname(name)
    if not parent:
        return True
    if parent not in seen:
        try:
            mode = os.lstat(os.path.join(root, parent)).st_mode
        except (IOError, OSError) as error:
            if error.errno not in ABSENT:
                raise
            mode = 0
        seen[parent] = stat.S_ISDIR(mode) and bool(mode & 0o1) and is_reachable(root, parent, seen)
    return seen[parent]


def pack(layer, root, name, condition):
    """Pack one name into a tar file if it meets its condition; returns whether it was packed."""
    path = os.path.join(root, name)
    status = os.lstat(path)
    member = tarfile.TarInfo(name)
    if stat.S_ISLNK(status.st_mode):
        member.type, member.linkname, member.mode = tarfile.SYMTYPE, os.readlink(path), 0o777
        layer.addfile(member)
    elif condition is LINK:
        return False
    elif stat.S_ISDIR(status.st_mode):
        member.type, member.mode = tarfile.DIRTYPE, mode_of(status)
        layer.addfile(member)
    elif condition and stat.S_ISREG(status.st_mode):
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as stream:
            status = os.fstat(stream.fileno())
            if not stat.S_ISREG(status.st_mode) or not status.st_mode & stat.S_IROTH:
                return False
            if isinstance(condition, tuple) and not is_compiled(stream, root, *condition):
                return False
            if isinstance(condition, set) and checksum(stream) not in condition:
                return False
            stream.seek(0)
            # Python compares a source's time with the one in the compiled file.
            member.size, member.mode, member.mtime = status.st_size, mode_of(status), int(status.st_mtime)
            layer.addfile(member, stream)
    else:
        return False
    return True


def mode_of(status):
    """The permissions without the setuid and setgid bits."""
    return stat.S_IMODE(status.st_mode) & 0o1777


def is_compiled(stream, root, source, checksums):
    """True if the compiled file's header matches the unmodified packaged source."""
    header = stream.read(16)
    with open(os.path.join(root, source), "rb") as text:
        status = os.fstat(text.fileno())
        facts = struct.pack("<LL", int(status.st_mtime) & 0xFFFFFFFF, status.st_size & 0xFFFFFFFF)
        # After the magic number, and since Python 3.7 after flags.
        return facts in (header[4:12], header[8:16]) and checksum(text) in checksums


def checksum(stream, kind=hashlib.md5):
    digest = kind()
    for block in iter(lambda: stream.read(1 << 20), b""):
        digest.update(block)
    return digest.hexdigest()


def written(root):
    """Contents of the files written for the image, by name. From the certificate bundle, only certificates are copied."""
    contents = dict(WRITTEN)
    try:
        with open(os.path.join(root, CERTIFICATES), "rb") as stream:
            contents[CERTIFICATES] = b"".join(re.findall(CERTIFICATE, stream.read()))
    except (IOError, OSError) as error:
        if error.errno not in ABSENT:
            raise
    return contents


def write_layer(stream, root, folders):
    """Write the allowed names as a tar file; returns the packed names."""
    names, contents, seen, packed = allowed(root, folders), written(root), {}, set(WRITTEN)
    layer = tarfile.open(fileobj=stream, mode="w", format=tarfile.GNU_FORMAT)
    for name in sorted(set(names) | set(contents)):
        if name in contents:
            member = tarfile.TarInfo(name)
            member.size = len(contents[name])
            layer.addfile(member, io.BytesIO(contents[name]))
        elif is_reachable(root, name, seen):
            try:
                if pack(layer, root, name, names[name]):
                    packed.add(name)
            except (IOError, OSError) as error:
                if error.errno not in ABSENT:
                    raise
    layer.close()
    return packed


def compact(document):
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode("utf-8")


def contents(environment, folders, root="/"):
    """A digest of the image's sources: the node's packages, the environment's distributions, names of further folders."""
    digest = hashlib.sha256(compact([FORMAT, folders]))
    with open(os.path.join(root, "var/lib/dpkg/status"), "rb") as stream:
        wanted = (b"Package:", b"Version:", b"Status:")
        digest.update(b"".join(line for line in stream if line.startswith(wanted)))
    pattern = os.path.join(root, environment.lstrip("/"), "lib", "python*", "site-packages", "*.dist-info", "RECORD")
    for path in sorted(glob.glob(pattern)):
        digest.update(path.encode("utf-8"))
        with open(path, "rb") as stream:
            digest.update(hashlib.sha256(stream.read()).digest())
    return digest.hexdigest()


def write(path, name, label, folders, needed=(), root="/"):
    """Write an image of the packages and these folders as `docker save` does. `needed` lists programs that it must contain."""
    # Created before the layer: a link in its place is refused.
    with new_file(path) as stream, new_file(path + ".layer") as layer:
        os.unlink(path + ".layer")
        packed = write_layer(layer, root, folders)
        for program in needed:
            real = os.path.realpath(os.path.join(root, program.lstrip("/")))
            if os.path.relpath(real, os.path.realpath(root)) not in packed:
                raise RuntimeError(
                    "%s cannot be included: expected an unmodified file of a package, or a file in %s, readable by all users; "
                    "found %s" % (program, ", ".join(folders), real)
                )
        layer.seek(0)
        config = compact(configuration(label, checksum(layer, hashlib.sha256)))
        file_name = hashlib.sha256(config).hexdigest() + ".json"
        manifest = compact([{"Config": file_name, "RepoTags": ["%s:%s" % (name, TAG)], "Layers": ["layer.tar"]}])
        archive = tarfile.open(fileobj=stream, mode="w", format=tarfile.GNU_FORMAT)
        for member_name, content in (("layer.tar", layer), (file_name, io.BytesIO(config)), ("manifest.json", io.BytesIO(manifest))):
            member = tarfile.TarInfo(member_name)
            member.size = content.seek(0, os.SEEK_END) or content.tell()
            content.seek(0)
            archive.addfile(member, content)
        archive.close()


def new_file(path):
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), "w+b")


def configuration(label, layer):
    return {
        "architecture": MACHINES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "created": "1970-01-01T00:00:00Z",
        "config": {"Env": ["PATH=" + PATH, "LANG=C.UTF-8"], "Labels": {LABEL: label}},
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + layer]},
        "history": [{"created": "1970-01-01T00:00:00Z", "created_by": "the packages of a node and an environment"}],
    }
