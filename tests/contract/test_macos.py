"""Analysis needs nothing that only Linux has, as far as a test on Linux can show."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from captured import captured
from make_logs import ROOT, published_tree

REPORT = "mxnet-resnet50v1b.md"
# Every process of a command, workers too, starts with this. _scproxy is a module of macOS that the
# standard library imports there.
PRELUDE = """
import os, resource, select, signal, socket, sys, sysconfig, types

sysconfig.get_config_vars()  # from a file that is named after the true platform
sys.platform = "darwin"
proxies = types.ModuleType("_scproxy")
proxies._get_proxies = proxies._get_proxy_settings = dict
sys.modules["_scproxy"] = proxies
for module, names in {
    os: "copy_file_range eventfd getrandom getxattr listxattr memfd_create pidfd_open"
    " posix_fadvise posix_fallocate sched_getaffinity sched_setaffinity setxattr splice"
    " O_TMPFILE RTLD_DEEPBIND",
    resource: "prlimit",
    select: "epoll",
    signal: "pidfd_send_signal sigtimedwait sigwaitinfo",
    socket: "AF_NETLINK SO_BINDTODEVICE",
}.items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)


class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {
            "ansible", "ansible_runner", "apt", "apt_pkg", "dbus", "ossaudiodev", "spwd", "systemd"
        }:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def without_kernel_files(event, arguments):
    if event == "open" and str(arguments[0]).startswith(("/proc/", "/sys/")):
        raise FileNotFoundError(2, "No such file or directory", arguments[0])


sys.meta_path.insert(0, Absent())
sys.addaudithook(without_kernel_files)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("macos")
    (made / "python").mkdir()
    (made / "python/sitecustomize.py").write_text(PRELUDE)
    published_tree(made / "logs", REPORT)
    return made


def python(folder: Path, *argv: str) -> str:
    paths = os.pathsep.join([str(folder / "python"), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": paths}
    done = captured(sys.executable, *argv, cwd=folder, env=environment, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_prelude_is_in_force(folder: Path) -> None:
    said = "import multiprocessing as m, os, sys; print(sys.platform, m.get_start_method())"
    assert python(folder, "-c", said) == "darwin spawn\n"
    assert python(folder, "-c", "import os; print(hasattr(os, 'sched_getaffinity'))") == "False\n"


def test_logs_are_summarized_compared_and_reported(folder: Path) -> None:
    dlperf = ("-m", "dlperf_runner")
    assert "mxnet-resnet50v1b" in python(folder, *dlperf, "summarize", "logs")
    assert "mxnet-resnet50v1b" in python(folder, *dlperf, "compare", "logs")
    python(folder, *dlperf, "report", "logs", "--output-dir", "report")
    assert (folder / "report/report.html").stat().st_size > 10_000
    assert list((folder / "report").glob("**/*.svg"))
