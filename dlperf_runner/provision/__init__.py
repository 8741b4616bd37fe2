"""Computation for roles: pure functions, which the playbooks call as filters."""
