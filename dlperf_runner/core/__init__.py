"""The foundation that all other packages use."""
