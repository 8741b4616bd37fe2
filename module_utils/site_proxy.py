"""The proxy through which a node reaches an address.

That of the environment, as urllib reads it, or else that of the package manager: sites often give a proxy to apt or dnf alone.
"""

from __future__ import absolute_import, division, print_function

import os
import re
from contextlib import contextmanager

from ansible.module_utils.node_probes import output, text

try:
    from urllib.parse import urlsplit
    from urllib.request import getproxies
except ImportError:
    from urllib import getproxies
    from urlparse import urlsplit

TIMEOUT_S = 15


def apt_proxy(address, settings):
    """The proxy in the output of C(apt-config dump): Acquire::http::Proxy::mirror.example "DIRECT"; None if apt uses none."""
    result = dict((name.lower(), value) for name, value in re.findall(r'(?m)^(Acquire::\S+) "(.*)";$', settings))
    parts = urlsplit(address)
    # apt's method https reads the settings of http, too.
    for scheme in (parts.scheme, "http"):
        for name in ("acquire::%s::proxy::%s" % (scheme, parts.hostname), "acquire::%s::proxy" % scheme):
            if result.get(name):
                return None if result[name] == "DIRECT" else result[name]
    if any(re.match("acquire::https?::proxy-?auto-?detect$", name) for name in result):
        answer = output(TIMEOUT_S, "/usr/lib/apt/apt-helper", "auto-detect-proxy", address) or ""
        match = re.match("Using proxy '(http[^']+)'", answer)
        return match.group(1) if match else None
    return None


def manager_proxy(address):
    """The proxy of apt or dnf for an address; None if there is none."""
    match = re.search(r"(?m)^proxy\s*=\s*(http\S+)", text("/", "etc/dnf/dnf.conf") or "")
    settings = output(TIMEOUT_S, "apt-config", "dump") or ""
    return match.group(1) if match else apt_proxy(address, settings)


@contextmanager
def proxied(address):
    """Let urllib, and therefore fetch_url, use the node's proxy for an address. Gives the proxy, or None."""
    scheme = urlsplit(address).scheme
    if scheme not in ("http", "https"):
        yield None
        return
    of_environment = getproxies()
    if scheme in of_environment:
        yield of_environment[scheme]
        return
    proxy, name = manager_proxy(address), "%s_proxy" % scheme
    if proxy:
        os.environ[name] = proxy
    try:
        yield proxy
    finally:
        if proxy:
            del os.environ[name]
