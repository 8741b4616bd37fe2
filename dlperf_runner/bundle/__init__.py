"""The mirror folder from which nodes are provisioned offline: a signed apt repository with its
dependency closure, a wheelhouse, and a manifest that says why each file is there.

`needs` says what a stack wants, `archives` where packages come from, `apt` and `wheels` fetch (by
apt and pip, which verify what they fetch), `debs` brings what packages depend on, `repository`
makes and signs the index, `manifest` proves a folder whole, and `mirror` puts it together. Of
stacks with GPUs, `vendor` says what comes from vendors, `vendor_fetch` has it fetched as they have
it: `vendor_repository` and `debian_version` choose out of their signed indexes, `fetch` brings
files; `vendor_sources` is what of it the distribution's part has to fit.
"""

from .archives import Source
from .manifest import Item, Manifest, Skipped
from .mirror import Outcome, choose, listing, make
from .needs import Needs, RequirementsFile
from .settings import Settings

__all__ = [
    "Item",
    "Manifest",
    "Needs",
    "Outcome",
    "RequirementsFile",
    "Settings",
    "Skipped",
    "Source",
    "choose",
    "listing",
    "make",
]
