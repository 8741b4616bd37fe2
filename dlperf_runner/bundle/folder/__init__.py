"""What every part of a mirror folder needs: its manifest, digests of files, the lock."""
