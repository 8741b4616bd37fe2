"""A stand-in for reboots. A node of the lab cannot be booted: its `shutdown` gives it another boot
id a while later, and writes down both times. What asks for it and waits for it is Ansible's own."""

LOG = "/var/log/standin-shutdown.log"
SECONDS = 3
SHUTDOWN = rf"""
mkdir -p /srv/boot && echo before > /srv/boot/id
mount --bind /srv/boot/id /proc/sys/kernel/random/boot_id
cat > /sbin/shutdown <<'END'
#!/bin/sh
# Ansible calls it on a terminal, whose hang-up would end what setsid has not yet taken from it.
trap '' HUP
date +%s.%N >> {LOG}
setsid sh -c 'sleep {SECONDS}; date +%s.%N >> {LOG}; sh /srv/boot/at; \
  echo after > /srv/boot/id' > /dev/null 2>&1 &
END
chmod 755 /sbin/shutdown
"""
# No container, and nouveau holds the GPUs.
TREE = "/srv/node"
PREPARED = f"""
mkdir -p {TREE}/proc/driver/nvidia && ln -s /var /usr {TREE}
echo 'nouveau 1 0 - Live 0x0' > {TREE}/proc/modules
"""
REMOVED = f"umount /proc/sys/kernel/random/boot_id; rm -r /srv/boot {TREE} {LOG} /sbin/shutdown"
NVRM = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.105.08  Wed Oct 29 22:15:28 UTC 2025"
LOADED = f": > {TREE}/proc/modules; echo '{NVRM}' > {TREE}/proc/driver/nvidia/version"
INSTALLED = {
    "role": "nvidia_driver",
    "part": ["preflight", "configure"],
    "nvidia_driver_version": "580.105.08",
    "nvidia_driver_system": "ubuntu22.04",
    "nvidia_driver_root": TREE,
}
