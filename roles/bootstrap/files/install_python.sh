# install_python PACKAGE SECONDS [MIRROR SUITE KEY]: install a package on a node without Python, where no module can run.
# With a mirror, from it and nowhere else; KEY is the text of the armored key that signs it.
# Waits for the locks of apt and dpkg as module_utils/dpkg_locks.py does.
set -eu
package=$1 limit=$2 mirror=${3-} suite=${4-} key=${5-} waited=0

holder() {
  for lock in /var/lib/dpkg/lock-frontend /var/lib/dpkg/lock /var/lib/apt/lists/lock /var/cache/apt/archives/lock; do
    test -e "$lock" || continue
    # 1: POSIX  ADVISORY  WRITE 4711 08:01:131076 0 EOF. Another file system may have the same inode, so the open file counts, too.
    for process in $(awk -v end=":$(stat -c %i "$lock")$" '$2 != "->" && $6 ~ end { print $5 }' /proc/locks); do
      for file in "/proc/$process/fd/"*; do
        test "$(readlink "$file")" = "$lock" || continue
        echo "$(cat "/proc/$process/comm" 2>/dev/null), process $process has held $lock"
        return
      done
    done
  done
}

while who=$(holder); test -n "$who"; do
  if test "$waited" -ge "$limit"; then
    echo "$who for $limit s. Wait for it or stop it, then run again; dlperf_lock_timeout sets how long to wait." >&2
    exit 100
  fi
  sleep 1
  waited=$((waited + 1))
done
export DEBIAN_FRONTEND=noninteractive LC_ALL=C NEEDRESTART_SUSPEND=1
dpkg --force-confdef --force-confold --configure -a
if test -z "$mirror"; then
  apt-get -q update || true # an unreachable source matters only if the package is then missing
  exec apt-get -q -y install --no-install-recommends "$package"
fi

own=$(mktemp -d)
trap 'rm -rf "$own"' EXIT
chmod 0755 "$own" # apt reads it as the user _apt
mkdir -p "$own/lists/partial"
# Binary, because apt before 1.4 cannot read armored keys: the lines between the blank one and the checksum.
echo "$key" | sed -n '/^$/,/^[=-]/p' | sed '/^[=-]/d' | base64 -d >"$own/key.gpg"
echo "deb [signed-by=$own/key.gpg] $mirror $suite main" >"$own/sources.list"
from_mirror() {
  apt-get -q -y -o "Dir::Etc::SourceList=$own/sources.list" -o Dir::Etc::SourceParts=/dev/null -o "Dir::State::Lists=$own/lists" \
    -o Acquire::Languages=none -o Acquire::AllowInsecureRepositories=false -o APT::Get::AllowUnauthenticated=false "$@"
}
from_mirror update
from_mirror install --no-install-recommends "$package"
