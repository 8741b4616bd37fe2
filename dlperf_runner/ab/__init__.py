"""Two versions of anything, measured in turns and compared in pairs."""
