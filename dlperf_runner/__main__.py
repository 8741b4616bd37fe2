"""`python -m dlperf_runner`, and the command `dlperf`."""

import atexit
import gc
import os
import sys


def main() -> None:
    """Run the command line; say in one line what this Python lacks."""
    if sys.version_info < (3, 11):  # noqa: UP036  before anything is imported that needs it
        version = sys.version.split()[0]
        sys.exit(f"error: dlperf_runner needs Python 3.11 or newer, this is {version}")
    # A file must not get the number of a stream that the caller closed (`>&-`).
    while (number := os.open(os.devnull, os.O_RDWR)) < 3:
        name, mode = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))[number]
        setattr(sys, name, open(number, mode))  # noqa: PTH123, SIM115
    os.close(number)
    # Imports and tables make many objects and few cycles. Python would look for these too often,
    # and among all objects once more at the end: a fifth of the time of a short command.
    gc.set_threshold(500_000)
    atexit.register(gc.freeze)
    # Pydantic would search all installed packages for plugins.
    os.environ["PYDANTIC_DISABLE_PLUGINS"] = "__all__"
    try:
        from .commands import main as command_line
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("dlperf_runner"):
            raise
        # The first thing that goes wrong in a new shell.
        print(
            f"error: {sys.executable}: this Python lacks the module {error.name}\n"
            "hint: in a clone, `make setup` once, then `. .venv/bin/activate`;"
            " elsewhere, `pip install dlperf_runner`",
            file=sys.stderr,
        )
        sys.exit(2)
    try:
        command_line()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
