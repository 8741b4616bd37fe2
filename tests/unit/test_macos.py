"""Analysis needs nothing that only Linux has, as far as a test on Linux can show."""

import os
import sys
from pathlib import Path

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


# One process for all commands: to import pandas takes longest.
COMMANDS = """
import multiprocessing, os, sys

if __name__ == "__main__":
    print(sys.platform, multiprocessing.get_start_method(), hasattr(os, "sched_getaffinity"))
    from dlperf_runner.commands import app

    for words in ("summarize logs", "compare logs", "report logs --output-dir report"):
        print("====", app(words.split(), standalone_mode=False))
"""


def test_logs_are_summarized_compared_and_reported(tmp_path: Path) -> None:
    (tmp_path / "python").mkdir()
    (tmp_path / "python/sitecustomize.py").write_text(PRELUDE)
    (tmp_path / "commands.py").write_text(COMMANDS)
    published_tree(tmp_path / "logs", REPORT)
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path / 'python'}{os.pathsep}{ROOT}"}
    done = captured(sys.executable, "commands.py", cwd=tmp_path, env=environment, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    summary, compared, _, _ = done.stdout.split("====")
    assert summary.startswith("darwin spawn False\n")
    assert "mxnet-resnet50v1b" in summary
    assert "mxnet-resnet50v1b" in compared
    assert (tmp_path / "report/report.html").stat().st_size > 10_000
    assert list((tmp_path / "report").glob("**/*.svg"))
