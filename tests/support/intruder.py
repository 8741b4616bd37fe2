"""What the ordinary user of a node tries against root, and what root would have lost by it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from lab_under_test import Lab

SECRET = "planted-71d0c4b2aa"  # noqa: S105
CANARY = "/etc/canary.d"
NAMES = (
    *("secret", "authorized_keys", "authorized_keys.new", "id_ed25519", "id_ed25519.pub"),
    *("containers/storage.conf", "containers/containers.conf", "runs/campaign"),
)
PREPARE = f"""
set -e
mkdir -p {CANARY}/containers {CANARY}/runs
for name in {" ".join(NAMES)}; do echo {SECRET} > {CANARY}/$name; done
chmod 600 {CANARY}/* && chmod 755 {CANARY}/containers {CANARY}/runs
"""
# As the user, whose writable and readable places are asked for, and as root, who sees everything.
LOSSES = rf"""
echo "== canary"
find {CANARY} /etc/shadow /etc/gshadow /etc/sudoers /etc/ssh/*_key -printf '%M %U:%G %p %l\n'
find {CANARY} -type f -exec sha256sum {{}} +
echo "== privileged"; find / -xdev -type f -perm /6000 -uid 0
echo "== writable"
cd /; runuser -u dlperf -- find / -xdev ! -user dlperf ! -type l -writable 2>/dev/null
echo "== leaked"; grep -rlF -D skip {SECRET} /home /opt /srv /tmp /usr/local /var 2>/dev/null
echo "== executed"; grep -qsx 0 /home/dlperf/executed && echo by root
echo "== builder"; getent passwd dlperf-build; ls -d /opt/dlperf/build 2>/dev/null
true
"""
# Run by whoever starts a shell or a Python with something of the user's in its way.
PAYLOAD = "id -u >> /home/dlperf/executed"
PYTHON_PAYLOAD = f"import os; os.system({PAYLOAD!r})"
PLANT = f"""
set -e
cd ~
for file in .bashrc .profile .bash_profile .bash_env .ssh/rc; do echo '{PAYLOAD}' > $file; done
for name in PYTHONPATH LD_LIBRARY_PATH; do echo $name=$HOME/lib >> .pam_environment; done
echo BASH_ENV=$HOME/.bash_env >> .pam_environment
cp .pam_environment .ssh/environment
site=$(python3 -m site --user-site)
mkdir -p lib $site runs/campaign /opt/dlperf/runs/evil /opt/dlperf/data/evil
for folder in lib $site /opt/dlperf/runs /opt/dlperf/data /tmp /var/tmp; do
  for file in sitecustomize.py usercustomize.py evil.pth; do
    echo "{PYTHON_PAYLOAD}" > $folder/$file
  done
done
for folder in runs/campaign /opt/dlperf/runs/evil /opt/dlperf/data/evil; do
  (cd $folder; ln -sfn {CANARY} link; ln -sfn / root; mkfifo pipe; touch "$(printf 'a\nb')" -- -rf)
done
for file in /etc/shadow {CANARY}/secret /usr/bin/passwd; do ln $file runs/ 2>/dev/null || true; done
for folder in /opt/dlperf/envs/mxnet/bin /opt/dlperf/uv/bin /opt/dlperf/stamps /usr/local/bin; do
  cp /bin/sh $folder/evil 2>/dev/null || true
done
"""
# Swaps paths as fast as it can, and takes whatever folder lets it in.
RACE = rf"""
import os, shutil, time
home = os.path.expanduser("~")
watched = ["/opt/dlperf/build", "/var/lib/dlperf/files", "/usr/local", "/opt/dlperf/wheels", "/srv"]

def attempt(action, *arguments):
    try:
        action(*arguments)
    except OSError:
        pass

def swap(path, target):
    if os.path.islink(path):
        os.unlink(path)
        os.path.lexists(path + ".kept") and os.rename(path + ".kept", path)
    else:
        os.path.lexists(path) and os.rename(path, path + ".kept")
        os.symlink(target, path)

def setuid_into(folder):
    path = os.path.join(folder, "evil")
    shutil.copy("/bin/sh", path)
    os.chmod(path, 0o4755)

def invade(folder):
    attempt(os.symlink, "{CANARY}/secret", os.path.join(folder, "build.tar.gz"))
    if "/root" in folder:
        attempt(setuid_into, folder)
        attempt(os.symlink, "{CANARY}/secret", os.path.join(folder, "link"))

while True:
    for top in watched:
        for folder, _folders, _files in os.walk(top):
            invade(folder)
    for name in SWAPPED:
        attempt(swap, os.path.join(home, name), "{CANARY}/" + os.path.basename(name))
    time.sleep(0.005)
"""


@dataclass(frozen=True)
class Intruder:
    """The user dlperf of a node."""

    lab: Lab
    node: str

    def does(self, script: str) -> str:
        return self.lab.said(
            self.node, f"cd / && runuser -u dlperf -- sh <<'END'\nHOME=/home/dlperf\n{script}\nEND"
        )

    def races(self, *swapped: str) -> None:
        """Start it; it goes on until it is stopped."""
        code = f"SWAPPED = {json.dumps(swapped)}\n{RACE}"
        self.lab.said(self.node, f"cat > /tmp/race.py <<'END'\n{code}\nEND")
        start = "HOME=/home/dlperf setsid runuser -u dlperf -- python3 -I /tmp/race.py"
        self.lab.said(self.node, f"cd / && ({start} > /tmp/race.log 2>&1 < /dev/null &)")

    def stops(self) -> None:
        alive = "grep -qs [r]ace.py /proc/[0-9]*/cmdline"
        said = self.lab.said(self.node, f"cat /tmp/race.log; {alive} || echo it had ended before")
        self.lab.said(self.node, "cd / && runuser -u dlperf -- sh -c 'kill -KILL -1'")
        assert said == ""


def changes(before: dict[str, list[str]], now: dict[str, list[str]]) -> list[str]:
    """What was not there before, and what is gone, with its kind."""
    pairs = {f"{kind}: {line}" for kind in before for line in set(before[kind]) ^ set(now[kind])}
    return sorted(pairs)


def losses(lab: Lab, node: str) -> dict[str, list[str]]:
    """What root would not want to change, by kind."""
    found: dict[str, list[str]] = {}
    for line in lab.said(node, LOSSES).splitlines():
        if line.startswith("== "):
            kind = line[3:]
            found[kind] = []
        else:
            found[kind].append(line)
    return {kind: sorted(lines) for kind, lines in found.items()}


def source(prefix: str, install: str = "") -> dict[str, Any]:
    """Files of a tiny project that configure and make build; `install` is added to its own."""
    configure = f"""#!/bin/sh
cat > Makefile <<'END'
P = $(DESTDIR){prefix}
all:
	printf '#!/bin/sh\\necho tiny\\n' > tiny && chmod 755 tiny
install: all
	mkdir -p $(P)/bin $(P)/share && cp tiny $(P)/bin && ln -s tiny $(P)/bin/also && sleep 2
	{install or "true"}
END
"""
    return {"configure": configure}
