"""The mirror folder from which nodes install offline: a signed apt repository with all
dependencies, a wheelhouse, what vendors publish, and a manifest that says why each file is there.

`needs` says what a stack wants. `debian` brings the distribution's packages (apt resolves and
verifies them) and signs their index, `python` brings wheels (pip verifies them), `vendor` brings
vendors' signed indexes, packages and files. `mirror` makes the folder of these, `listing` shows
what it would contain, `folder` is what all of them use.
"""
