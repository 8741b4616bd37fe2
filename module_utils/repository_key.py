"""Fetches the key of an apt repository and verifies it."""

from __future__ import absolute_import, division, print_function

__metaclass__ = type

import hashlib

from ansible.module_utils.deb_undo import read_bytes
from ansible.module_utils.openpgp_key import dearmored, key_problem
from ansible.module_utils.urls import fetch_url


def fetched_key(module, repository, fail):
    """The repository's keyring, in binary form. Calls `fail(problem, remedy)` if the key is missing or another one."""
    address = repository["key"]
    if address.startswith(("/", "file:")):
        data = read_bytes(address[5:] if address.startswith("file:") else address)
        if data is None:
            fail("the repository's key %s does not exist" % address, "copy it there, or correct the path")
    else:
        response, info = fetch_url(module, address, timeout=30)
        if info["status"] != 200:
            fail("cannot download the repository's key from %s: %s" % (address, info["msg"]),
                 "check the URL, or the mirror in dlperf_mirror and dlperf_vendor_mirror")  # fmt: skip
        data = response.read()
    digest = hashlib.sha256(data).hexdigest()
    wanted = repository.get("key_sha256")
    if wanted and digest != wanted:
        fail("the repository's key %s has the wrong checksum: expected sha256 %s, found %s" % (address, wanted, digest),
             "compare it with the checksum that the vendor publishes")  # fmt: skip
    problem = key_problem(data, repository["fingerprints"])
    if problem:
        fail("the repository's key %s is not the expected one: %s" % (address, problem),
             "compare the fingerprint with the one that the vendor publishes; nothing was changed")  # fmt: skip
    return dearmored(data)
