"""The mirror folder from which nodes install offline: a signed apt repository with all
dependencies, a wheelhouse, what vendors publish, and a manifest with the reason for each file.

`needs` lists a stack's needs, `release_tables` those that vendors have. `apt` resolves and fetches
packages and signs their index, pip fetches `wheels`, `vendors` has the vendors' signed indexes and
files. `mirror` makes the folder of these.
"""
