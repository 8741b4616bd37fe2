"""The mirror folder from which nodes install offline: a signed apt repository with all
dependencies, a wheelhouse, what vendors publish, and a manifest that says why each file is there.

`needs` says what a stack wants, and lists it; `release_tables` says what of that vendors have.
`closure` brings the distribution's packages (`apt` resolves, fetches and verifies them) and signs
their index, `wheels` brings wheels (pip verifies them), `vendors` brings vendors' signed indexes,
packages and files. `mirror` makes the folder of these.
"""
