"""What all tests need: modules as Ansible packs them, and signals as in a terminal."""

from __future__ import annotations

import signal
from pathlib import Path

import ansible.module_utils

ansible.module_utils.__path__.append(str(Path(__file__).parents[1] / "module_utils"))

# A shell starts background commands with SIGINT ignored, nohup with SIGHUP, and every process below
# inherits that.
signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)
