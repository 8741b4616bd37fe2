"""Commands whose exit status and output a test looks at."""

import os
import subprocess
from pathlib import Path
from typing import Any


def captured(*argv: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """A command that may fail, with both streams as text."""
    return subprocess.run(
        list(map(str, argv)), capture_output=True, text=True, check=False, **options
    )


def git(directory: Path, *arguments: str) -> str:
    """What git prints of a test's repository; it must succeed."""
    author = ("-c", "user.name=a", "-c", "user.email=a@b")
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull}
    done = captured("git", *author, "-C", directory, *arguments, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
