#!/bin/sh
# mpirun's remote shell where it runs in a container: HOST COMMAND... becomes a container on that host, which executes the
# command. DLPERF_REMOTE_CONTAINER is the host's own command for it, quoted for its shell.
set -eu
host=$1
shift
command -v ssh >/dev/null || {
    echo "the image has no ssh: mpirun cannot reach $host from inside a container" >&2
    exit 127
}
# mpirun quotes what it passes on for one shell, and here are two.
quoted=$(printf '%s' "$*" | sed "s/'/'\\\\''/g")
exec ssh -o BatchMode=yes -l "$DLPERF_REMOTE_USER" "$host" "$DLPERF_REMOTE_CONTAINER /bin/sh -c '$quoted'"
