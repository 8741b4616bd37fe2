"""Statistics: frame in, frame out."""
