"""What all tests need: modules as Ansible packs them, and signals as in a terminal."""

import signal
from pathlib import Path

import ansible.module_utils
import pytest
from hypothesis import HealthCheck, settings

ansible.module_utils.__path__.append(str(Path(__file__).parents[1] / "module_utils"))

# How long an example takes depends on what else the machine does.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")

# A shell starts background commands with SIGINT ignored, nohup with SIGHUP, and every process below
# inherits that.
signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)


def pytest_addoption(parser: pytest.Parser) -> None:
    told = "begin with the last test: none may need what an earlier one leaves"
    parser.addoption("--backwards", action="store_true", help=told)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Labs first: they take longest, and much of that time they wait, while other tests compute."""
    if config.getoption("--backwards"):
        items.reverse()
    items.sort(key=lambda item: item.get_closest_marker("lab") is None)
