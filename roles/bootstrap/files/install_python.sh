# install_python PACKAGE SECONDS: install a package on a node without Python, where no module can run.
# Waits for the locks of apt and dpkg as module_utils/dpkg_locks.py does.
set -eu
package=$1 limit=$2 waited=0

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
export DEBIAN_FRONTEND=noninteractive LC_ALL=C
dpkg --force-confdef --force-confold --configure -a
apt-get -q update || true # an unreachable source matters only if the package is then missing
apt-get -q -y install --no-install-recommends "$package"
