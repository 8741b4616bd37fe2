"""Secrets in the places where nodes have them, all readable by everybody: what keeps them out of an
image must not be their mode."""

MARK = "planted-secret-"
_LOGIN = "machine registry.example login user password {}\n"
_JSON = '{{"auths": {{"registry.example": {{"auth": "{}"}}}}}}\n'
_TEMPLATES = {
    "/root/.netrc": _LOGIN,
    "/etc/apt/auth.conf.d/site.conf": _LOGIN,
    "/etc/pip.conf": "[site]\npassword = {}\n",
    "/root/.docker/config.json": _JSON,
    "/home/alice/.docker/config.json": _JSON,
}
# What no package of a bare node brings.
PLACES = (
    "/var/backups/shadow.bak",
    "/var/backups/dpkg.status.0",
    "/etc/passwd-",
    "/etc/group-",
    "/etc/gshadow-",
    "/etc/environment",
    "/etc/profile.d/site-token.sh",
    "/etc/munge/munge.key",
    "/etc/krb5.keytab",
    "/etc/wireguard/wg0.conf",
    "/etc/kubernetes/admin.conf",
    "/etc/kubernetes/pki/ca.key",
    "/var/lib/kubelet/config.json",
    "/var/lib/cloud/instance/user-data.txt",
    "/etc/NetworkManager/system-connections/site.nmconnection",
    "/etc/wpa_supplicant/wpa_supplicant.conf",
    "/etc/sssd/sssd.conf",
    "/var/lib/sss/db/cache_site.ldb",
    "/etc/ssl/private/node.key",
    "/etc/ssl/certs/node-with-key.pem",
    "/etc/letsencrypt/live/node/privkey.pem",
    "/root/.docker/config.json",
    "/home/alice/.docker/config.json",
    "/root/.ssh/id_rsa",
    "/home/alice/.ssh/id_ed25519",
    "/root/.netrc",
    "/root/.pypirc",
    "/root/.aws/credentials",
    "/root/.bash_history",
    "/root/.config/gcloud/credentials.db",
    "/etc/apt/auth.conf.d/site.conf",
    "/etc/pip.conf",
    "/var/lib/systemd/credential.secret",
    "/etc/credstore/database",
    "/var/spool/cron/crontabs/root",
    "/etc/cron.d/site-backup",
    "/var/mail/root",
    "/var/spool/slurm/statesave/jwt_hs256.key",
    "/etc/slurm/slurmdbd.conf",
    "/etc/ipmitool/password",
    "/etc/iscsi/iscsid.conf",
    "/var/lib/samba/private/secrets.tdb",
    "/etc/snmp/snmpd.conf",
    "/var/lib/snmp/snmpd.conf",
    "/etc/ssh/ssh_host_rsa_key",
    "/etc/openvpn/site.conf",
    "/etc/fstab.credentials",
    "/etc/grafana/grafana.ini",
    "/usr/local/etc/site.conf",
    "/usr/share/site/token",
    "/usr/lib/python3/dist-packages/site_secrets.py",
    "/usr/lib/python3/dist-packages/__pycache__/site_secrets.cpython-311.pyc",
    "/opt/site/licence.key",
    "/opt/dlperf/envs/other/token",
    "/opt/dlperf/stamps/site.key",
    "/srv/data/key.pem",
    "/var/tmp/dump.sql",
    "/tmp/session",
)


def planted(place: str) -> str:
    """What is written there, in a form that the node's programs can still read; each place has
    a secret of its own."""
    secret = f"{MARK}{place.replace('/', '.')}-end"
    return _TEMPLATES.get(place, "password={}\n").format(secret)
