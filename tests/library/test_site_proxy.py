"""A node whose only way out is a proxy: real apt, urllib, fetch_url, pip and uv, on a node without
a name service. dnf is in test_rpm_systems.py.

With a proxy in apt's configuration alone, apt works, and what the roles and the doctor open
themselves fails (NVIDIA/deepops#35, ansible/ansible#31691: "Temporary failure in name resolution").
"""

import hashlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible.module_utils.site_proxy import apt_proxy
from apt_node import Node, make_site, vendor_node
from standin_repository import Standin, flat_repository, needs_apt
from tiny_index import module_wheel

from dlperf_runner.core.errors import UserError
from dlperf_runner.provision.preflight import proxy_environment

HOST, INDEX = "packages.example", "index.example"
PROXY = "http://127.0.0.1:3128"
# Forwards to the server of make_site whatever the name, and says so in proxy.log.
SERVE_PROXY = r"""
import http.client, select, socket

class Proxy(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        with open("/var/log/proxy.log", "a") as log:
            log.write(self.command + " " + self.path + "\n")

    def do_GET(self):
        host, _, path = self.path.removeprefix("http://").partition("/")
        server = http.client.HTTPConnection("127.0.0.1", 80)
        server.request("GET", "/" + path, headers={"Host": host})
        answer = server.getresponse()
        body = answer.read()
        self.send_response(answer.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_CONNECT(self):
        server = socket.create_connection(("127.0.0.1", 443))
        self.send_response(200)
        self.end_headers()
        ends = {self.connection: server, server: self.connection}
        while True:
            for end in select.select(list(ends), [], [])[0]:
                data = end.recv(65536)
                if not data:
                    return
                ends[end].sendall(data)

proxy = http.server.ThreadingHTTPServer(("127.0.0.1", 3128), Proxy)
threading.Thread(target=proxy.serve_forever, daemon=True).start()
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its server, its proxy, and a hosts file that knows neither vendor nor mirror."""
    folder = tmp_path_factory.mktemp("site")
    folder.chmod(0o755)
    make_site(folder, [HOST, INDEX])
    (folder / "hosts").write_text("127.0.0.1 localhost\n")
    program = (folder / "serve.py").read_text()
    (folder / "serve.py").write_text(program.replace("plain = ", f"{SERVE_PROXY}\nplain = ", 1))
    place = folder / "hosts.d" / HOST
    made = flat_repository(place, [Standin("libnccl2", "1.2.3-1")], folder / "key", "key.asc")
    (folder / "fingerprint").write_text(made)
    return folder


@pytest.fixture
def node(site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    for name in ("http_proxy", "https_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("SSL_CERT_FILE", str(site / "tls.pem"))
    with vendor_node(site) as made:
        yield made


def give(node: Node, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if way == "apt":
        node.write("/etc/apt/apt.conf.d/90proxy", f'Acquire::http::Proxy "{PROXY}";\n')
    elif way == "variable":
        for name, value in proxy_environment(PROXY).items():
            monkeypatch.setenv(name, value)


def installed(site: Path, node: Node, scheme: str) -> dict[str, object]:
    repository = {
        "name": "nvidia-cuda",
        "uri": f"{scheme}://{HOST}/",
        "key": f"{scheme}://{HOST}/key.asc",
        "fingerprints": [(site / "fingerprint").read_text()],
    }
    packages = {"libnccl2": "1.2.3-1"}
    return node.module(
        "package_family", name="nccl", packages=packages, lock_timeout=5, repository=repository
    )


@needs_apt
@pytest.mark.heavy
@pytest.mark.gpu_roles
@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("way", ["apt", "variable"])
def test_packages_keys_archives_and_the_doctor_go_through_the_proxy(
    site: Path, node: Node, way: str, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = installed(site, node, scheme)
    assert refused["failed"] and "name resolution" in str(refused["msg"]).lower()
    assert "the proxy (dlperf_proxy; none is set)" in str(refused["msg"])
    give(node, way, monkeypatch)
    assert installed(site, node, scheme)["changed"]
    assert node.said("dpkg-query -W -f '${Version}' libnccl2") == "1.2.3-1"
    archive = (site / "hosts.d" / HOST / "key.asc").read_bytes()
    placed = node.module(
        "vendor_file",
        path="/opt/archive",
        source=f"{scheme}://{HOST}/key.asc",
        sha256=hashlib.sha256(archive).hexdigest(),
    )
    assert placed["changed"], placed
    health = node.module("node_health_info")
    assert health["addresses"] == {f"{scheme}://{HOST}/InRelease": None}
    assert health["signatures"] == []
    words = {"http": f"GET http://{HOST}/key.asc", "https": f"CONNECT {HOST}:443"}
    assert words[scheme] in node.said("cat /var/log/proxy.log")


@pytest.mark.heavy
@pytest.mark.gpu_roles
@pytest.mark.parametrize("program", ["uv", "pip"])
def test_pip_and_uv_go_through_the_proxy_of_the_variable_and_not_through_apts(
    site: Path, node: Node, program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = site / "hosts.d" / INDEX / "simple/alpha"
    index.mkdir(parents=True, exist_ok=True)
    _path, digest = module_wheel(index, "alpha", "1.0")
    # uv takes no certificate that is its own authority.
    own = {"PIP_CONFIG_FILE": os.devnull, "PIP_TRUSTED_HOST": INDEX, "UV_INSECURE_HOST": INDEX}
    own |= dict.fromkeys(("PIP_INDEX_URL", "UV_DEFAULT_INDEX"), f"https://{INDEX}/simple")
    for name, value in {**own, "PIP_RETRIES": "0", "UV_HTTP_RETRIES": "0"}.items():
        monkeypatch.setenv(name, value)
    given = {
        "path": str(tmp_path / "env"),
        "interpreter": os.path.realpath(sys.executable),
        "uv": str(Path(sys.executable).with_name("uv")) if program == "uv" else "",
        "requirements": f"alpha==1.0 --hash=sha256:{digest}",
    }
    give(node, "apt", monkeypatch)
    assert node.module("python_environment", **given)["failed"]
    give(node, "variable", monkeypatch)
    made = node.module("python_environment", **given)
    assert made.get("packages") == {"alpha": "1.0"}, made["msg"]
    assert f"CONNECT {INDEX}:443" in node.said("cat /var/log/proxy.log")


@needs_apt
@pytest.mark.heavy
@pytest.mark.gpu_roles
def test_an_address_that_the_proxy_does_not_reach_names_the_proxy(node: Node) -> None:
    node.write("/etc/apt/apt.conf.d/90proxy", 'Acquire::http::Proxy "http://127.0.0.1:9";\n')
    node.write("/etc/apt/sources.list.d/site.list", f"deb http://{HOST}/ /\n")
    (answer,) = node.module("node_health_info")["addresses"].values()
    assert answer.startswith("through the proxy http://127.0.0.1:9: ")


@pytest.mark.parametrize(
    ("settings", "proxy"),
    [
        ('Acquire::http::Proxy "http://a:1";', "http://a:1"),
        ('Acquire::http::Proxy "http://a:1";\nAcquire::https::Proxy "DIRECT";', None),
        ('Acquire::HTTP::Proxy "http://a:1";\nAcquire::http::proxy::host "DIRECT";', None),
        ('Acquire::http::Proxy "";', None),
        ("", None),
    ],
)
def test_apts_own_rules_are_those_of_apt_conf(settings: str, proxy: str | None) -> None:
    """apt-transport-https(1): unset values are those of http; DIRECT is no proxy."""
    assert apt_proxy("https://host/a", settings) == proxy


def test_mirrors_of_the_site_are_reached_directly() -> None:
    made = proxy_environment(PROXY, ["intern.example"], ["http://mirror.example:80/x", "/srv/x"])
    assert made["HTTPS_PROXY"] == made["http_proxy"] == PROXY
    assert made["no_proxy"] == "localhost,127.0.0.1,::1,intern.example,mirror.example"
    assert proxy_environment("") == {}


@pytest.mark.parametrize(
    ("proxy", "reason"),
    [
        ("proxy.example:3128", "expected its URL, such as http://proxy.example:3128"),
        ("http://me:secret@proxy.example", "has a password"),
    ],
)
def test_a_proxy_that_is_no_url_or_has_a_password_is_refused(proxy: str, reason: str) -> None:
    with pytest.raises(UserError) as refused:
        proxy_environment(proxy)
    assert reason in str(refused.value)
    assert "secret" not in str(refused.value)
