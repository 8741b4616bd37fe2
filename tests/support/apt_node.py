"""A node of one test: real apt and dpkg in namespaces, where the vendors' own addresses lead."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from captured import captured
from executed_modules import call

PRIVATE = (
    "/etc/apt /var/lib /var/cache /var/log /usr/share/keyrings /usr/share/doc /opt /etc/docker"
)
HOLD = r"""
set -e
ip link set lo up
for place in $2; do
  if test -d $place; then mount -t tmpfs tmpfs $place; fi
done
mkdir -p /var/lib/dpkg/info /var/lib/dpkg/updates /var/lib/dpkg/triggers /var/lib/apt/lists/partial
mkdir -p /var/cache/apt/archives/partial /var/log/apt /usr/share/keyrings /etc/apt/keyrings
cd /etc/apt && mkdir apt.conf.d preferences.d sources.list.d trusted.gpg.d
touch /var/lib/dpkg/status
{ echo 'APT::Sandbox::User "root";'; echo "Acquire::https::CAInfo \"$1/tls.pem\";"
} > /etc/apt/apt.conf.d/99test
mount --bind $1/hosts /etc/hosts
cd / && exec "$3" $1/serve.py $1
"""
SERVE = r"""
import http.server, pathlib, ssl, sys, threading

folder = pathlib.Path(sys.argv[1])

class Handler(http.server.SimpleHTTPRequestHandler):
    def translate_path(self, path):
        return str(folder / "hosts.d" / self.headers["Host"] / path.lstrip("/"))

    def log_message(self, *_):
        pass

plain = http.server.ThreadingHTTPServer(("127.0.0.1", 80), Handler)
secure = http.server.ThreadingHTTPServer(("127.0.0.1", 443), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(folder / "tls.pem", folder / "tls.key")
secure.socket = context.wrap_socket(secure.socket, server_side=True)
threading.Thread(target=plain.serve_forever, daemon=True).start()
print("ready", flush=True)
secure.serve_forever()
"""


def make_site(folder: Path, hosts: list[str]) -> None:
    """The server's program, names and certificate; hosts.d/NAME is what it serves as that host."""
    names = ",".join(f"DNS:{host}" for host in hosts)
    subject = ["-subj", "/CN=stand-in", "-addext", f"subjectAltName={names}"]
    made = ["-keyout", folder / "tls.key", "-out", folder / "tls.pem", "-days", "2"]
    argv = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *made, *subject]
    subprocess.run(argv, check=True, capture_output=True)
    (folder / "hosts").write_text(f"127.0.0.1 localhost {' '.join(hosts)}\n")
    (folder / "serve.py").write_text(SERVE)


@dataclass(frozen=True)
class Node:
    enter: list[str]

    def module(self, module: str, /, check: bool = False, **arguments: Any) -> dict[str, Any]:
        return call(module, check, self.enter, **arguments)

    def shell(self, script: str) -> subprocess.CompletedProcess[str]:
        return captured(*self.enter, "sh", "-c", script, timeout=120)

    def said(self, script: str) -> str:
        done = self.shell(script)
        assert done.returncode == 0, (script, done.stdout, done.stderr)
        return done.stdout.strip()

    def write(self, path: str, content: str | bytes) -> None:
        data = content.encode() if isinstance(content, str) else content
        subprocess.run([*self.enter, "sh", "-c", f"cat > {path}"], input=data, check=True)

    def state(self) -> list[str]:
        """The files of apt's settings, and the packages with their holds."""
        files = (
            "find /etc/apt /var/lib/dlperf -type f -exec sha256sum {} + 2> /dev/null | sort -k 2"
        )
        packages = r"dpkg-query -W -f '${Package} ${Version} ${Status}\n'"
        return self.shell(f"{files}; {packages}").stdout.splitlines()

    def apt_works(self) -> bool:
        """Whether an update of all sources and a simulated installation succeed without a word."""
        update = self.shell("apt-get -q update")
        return update.returncode == 0 and not (
            update.stderr + self.said("apt-get -q -s dist-upgrade")
        ).count("W:")


@contextmanager
def vendor_node(site: Path) -> Iterator[Node]:
    """A new node; `site` is from `make_site`."""
    program = ["sh", "-c", HOLD, "sh", site, PRIVATE, sys.executable]
    unshared = ["unshare", "--map-root-user", "--mount", "--net", "--pid", "--fork", "--kill-child"]
    argv = list(map(str, [*unshared, "--mount-proc", *program]))
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout
            assert holder.stdout.readline() == "ready\n"
            children = Path(f"/proc/{holder.pid}/task/{holder.pid}/children").read_text().split()
            kinds = ["--user", "--mount", "--net", "--pid", "--preserve-credentials"]
            yield Node(["nsenter", "--target", children[0], *kinds, "--wd=/"])
        finally:
            holder.kill()
