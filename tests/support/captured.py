"""Commands whose exit status and output a test looks at."""

import subprocess
from typing import Any


def captured(*argv: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """A command that may fail, with both streams as text."""
    return subprocess.run(
        list(map(str, argv)), capture_output=True, text=True, check=False, **options
    )
