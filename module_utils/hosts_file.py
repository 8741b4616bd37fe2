"""The cluster's names in /etc/hosts. Python 2.7 and 3.5+."""
from __future__ import absolute_import, division, print_function


def is_loopback(address):
    return address.startswith(u"127.") or address == u"::1"


def is_local(name):
    """A name that belongs to the loopback address: localhost, ip6-loopback and the like."""
    return name.split(u".")[0] in (u"localhost", u"localhost4", u"localhost6", u"ip6-localhost", u"ip6-loopback", u"loopback")


def restored(lines, marker):
    """The lines as they were before `without_loopback`."""
    kept, made = u"# %s had: " % marker, u" # %s" % marker
    lines = (line for line in lines if line.startswith(u"#") or not line.endswith(made))
    return [line[len(kept) :] if line.startswith(kept) else line for line in lines]


def without_loopback(text, block, marker):
    """The text without lines that give a loopback address to a name of the block, and the block with their other names.

    Debian's installer writes `127.0.1.1 node1.example node1`: on the node itself, its own name is then the loopback address, where no other
    node listens. The line stays as a comment, and the full name moves to the node's address in the block. An empty block restores all.
    """
    begin, end = u"# BEGIN %s" % marker, u"# END %s" % marker
    names = set(name for line in block.splitlines() for name in line.split()[1:])
    result, others, inside = [], {}, False
    for line in restored(text.splitlines(), marker):
        inside = (inside or line.strip() == begin) and line.strip() != end
        fields = line.partition(u"#")[0].split()
        ours = [name for name in fields[1:] if name in names]
        if inside or not ours or not is_loopback(fields[0]):
            result.append(line)
            continue
        # In their order: the first name of a line is the full one.
        own = others.setdefault(ours[0], [])
        own += [name for name in fields[1:] if name not in own and (name == ours[0] or not (name in names or is_local(name)))]
        local = [name for name in fields[1:] if is_local(name)]
        result.append(u"# %s had: %s" % (marker, line))
        if local:
            result.append(u"%s # %s" % (u" ".join(fields[:1] + local), marker))
    lines = [line.split() for line in block.splitlines()]
    block = u"\n".join(u" ".join(fields[:1] + [other for name in fields[1:] for other in others.get(name, [name])]) for fields in lines if fields)
    return u"".join(line + u"\n" for line in result), block
