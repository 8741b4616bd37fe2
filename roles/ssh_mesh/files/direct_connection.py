"""Connect to a port of the system's choice on another node, as MPI, NCCL and gloo do; print `open`.

The other node listens for this one connection, started over SSH. Arguments: its name, and its
address in the network to test. The oldest Python that runs it is 3.5, of Ubuntu 16.04.
"""

import socket
import subprocess
import sys

TIMEOUT_S = 10
LISTEN = """
import socket, sys
listening = socket.socket(int(sys.argv[1]))
listening.bind(("", 0))
listening.listen(1)
listening.settimeout(2 * int(sys.argv[2]))
print(listening.getsockname()[1])
sys.stdout.flush()
listening.accept()
"""
SSH = ["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10"]

name, address = sys.argv[1:]
family = socket.getaddrinfo(address, None, 0, socket.SOCK_STREAM)[0][0]
command = " ".join(["/usr/bin/python3 -", str(int(family)), str(TIMEOUT_S)])
other = subprocess.Popen([*SSH, name, command], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
other.stdin.write(LISTEN.encode("ascii"))
other.stdin.close()
port = other.stdout.readline().strip().decode()
if not port.isdigit():
    sys.exit(name + " could not listen")
try:
    socket.create_connection((address, int(port)), TIMEOUT_S).close()
except OSError as error:
    other.kill()
    sys.exit(" ".join([name, "closes TCP", port, "of", address, "-", str(error)]))
print("open")
