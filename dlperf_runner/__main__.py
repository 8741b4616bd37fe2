"""`python -m dlperf_runner`."""

from .cli import main

if __name__ == "__main__":
    main()
