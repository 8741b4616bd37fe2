"""The Python part of a mirror folder: the wheelhouse that locked requirements files name."""
