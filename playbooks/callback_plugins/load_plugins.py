"""Load all filters and tests, and what they read of the catalogue, once, before Ansible forks.

Ansible loads them at the first template that uses one. That is in the process that it forks for a
task and a node, whose memory is lost: then each task loads them again, for each node.
"""

from __future__ import annotations

import gc
from contextlib import suppress
from typing import Any

from ansible.plugins.callback import CallbackBase
from ansible.plugins.loader import filter_loader, test_loader

DOCUMENTATION = """
name: load_plugins
type: aggregate
short_description: Load filters and tests before Ansible forks
"""


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "load_plugins"

    def v2_playbook_on_start(self, playbook: Any) -> None:  # noqa: ARG002
        list(filter_loader.all())
        list(test_loader.all())

        from dlperf_runner.catalog.reader import own_frameworks, own_stacks
        from dlperf_runner.core.errors import UserError

        with suppress(UserError):  # the task that needs it fails with it
            own_stacks(), own_frameworks()
        # A collection in a forked process would write to, and so copy, the memory of all of it.
        gc.collect()
        gc.freeze()
