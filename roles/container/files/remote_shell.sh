#!/bin/sh
# Remote shell for an mpirun in a container. HOST COMMAND... starts a container on that host, which executes the command.
# DLPERF_REMOTE_CONTAINER is the host's command that starts the container, quoted for its shell.
set -eu
host=$1
shift
command -v ssh >/dev/null || {
    echo "mpirun cannot reach $host from this container: the image has no ssh" >&2
    exit 127
}
# mpirun quotes the command for one shell, but it passes through two.
quoted=$(printf '%s' "$*" | sed "s/'/'\\\\''/g")
exec ssh -o BatchMode=yes -l "$DLPERF_REMOTE_USER" "$host" "$DLPERF_REMOTE_CONTAINER /bin/sh -c '$quoted'"
