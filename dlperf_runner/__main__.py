"""`python -m dlperf_runner`."""

import sys


def _start() -> None:
    try:
        from .cli.main import main
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("dlperf_runner"):
            raise
        # The first thing that goes wrong in a new shell.
        print(
            f"error: {sys.executable}: this Python lacks the module {error.name}\n"
            "hint: . .venv/bin/activate; where there is no .venv yet, make setup",
            file=sys.stderr,
        )
        sys.exit(2)
    main()


if __name__ == "__main__":
    try:
        _start()
    except KeyboardInterrupt:
        sys.exit(130)
