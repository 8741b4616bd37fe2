"""What roles must do on a node: pure functions, which the playbooks call as filters."""
