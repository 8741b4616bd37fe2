"""How nodes are reached, and how they reach the internet."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

from ..core.errors import UserError

_LOCAL = ("localhost", "127.0.0.1", "::1")
# What sudo prints -> what to do. Ansible's own message is "MODULE FAILURE".
_SUDO = {
    "must have a tty": "sudo on the node wants a terminal (requiretty in sudoers). Set"
    " ansible_ssh_pipelining: false for the node, or exempt the user in sudoers:"
    " Defaults:USER !requiretty",
    "a terminal is required|password is required|Missing sudo password": "sudo on the node wants a"
    " password: add --ask-become-pass, or allow the user in sudoers:"
    " USER ALL=(ALL) NOPASSWD: ALL",
    "not in the sudoers file|may not run sudo|not allowed to execute": "sudo on the node refuses"
    " the user: allow it in sudoers (USER ALL=(ALL) ALL), or connect as another (ansible_user)",
}


def proxy_environment(
    proxy: str, direct: Iterable[str] | str = (), mirrors: Iterable[str] = ()
) -> dict[str, str]:
    """The environment of what downloads on a node: `dlperf_proxy` for all but the hosts in `direct`
    (`dlperf_no_proxy`) and the site's own mirrors.

    Raises UserError for a proxy that is no URL, or one with a password, which command lines on the
    node would show."""
    if not proxy:
        return {}
    parts = urlsplit(proxy)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path not in ("", "/"):
        raise UserError(
            "invalid proxy",
            where="dlperf_proxy",
            expected="its URL, such as http://proxy.example:3128",
            found=repr(proxy),
        )
    if parts.password is not None:
        raise UserError(
            "the proxy's URL has a password, which command lines on the node would show",
            where="dlperf_proxy",
            expected="a URL without it",
            hint="give the password on the node: in apt's configuration and in /etc/environment,"
            " which only root should read",
        )
    hosts = [direct] if isinstance(direct, str) else [*direct]
    hosts += [host for mirror in mirrors if (host := urlsplit(mirror or "").hostname)]
    excepted = ",".join(dict.fromkeys([*_LOCAL, *hosts]))
    pairs = {"http_proxy": proxy, "https_proxy": proxy, "no_proxy": excepted}
    return {**pairs, **{name.upper(): value for name, value in pairs.items()}}


def sudo_hint(output: str, user: str = "") -> str:
    """The remedy if sudo refused to make a user root; empty if it did not."""
    for pattern, remedy in _SUDO.items():
        if re.search(pattern, output):
            return remedy.replace("USER", user or "USER")
    return ""


def sudo_problem(result: Mapping[str, Any], user: str) -> str:
    """The message for a failed result of Ansible, with the remedy if sudo refused."""
    texts = [str(result.get(key) or "") for key in ("msg", "module_stderr", "module_stdout")]
    return sudo_hint(" ".join(texts), user) or " ".join(filter(None, texts))
