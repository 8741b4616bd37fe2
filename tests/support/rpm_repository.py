"""Make signed repositories of stand-in rpm packages; runs on a lab node, which has rpmbuild.

Standard input: {folder: {packages, key, key_path, signed: packages or index, modules}}, where a
package has name, version (epoch:version-release), requires, obsoletes, provides, files and noarch.
Standard output: {key: fingerprint}.
"""

import json
import subprocess
import sys
from pathlib import Path

HOME, TOP = Path("/root/standin-keys"), Path("/root/standin-build")
HEAD = """\
Name: standin
Version: 0
Release: 0
Summary: stand-in
License: none
%global debug_package %{nil}
%global __os_install_post %{nil}
%global _build_id_links none
AutoReqProv: no
%description
stand-in
"""


def run(*argv, **options):
    done = subprocess.run(
        argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **options
    )
    if done.returncode != 0:
        sys.exit(f"{argv}: {done.stdout[-3000:]}")
    return done.stdout


def gpg(*arguments):
    silent = ["--batch", "--quiet", "--pinentry-mode", "loopback", "--passphrase", ""]
    return run("gpg", "--homedir", HOME, *silent, *arguments)


def fingerprint(name):
    HOME.mkdir(mode=0o700, exist_ok=True)
    mail = f"{name}@example.invalid"
    if mail not in gpg("--list-keys"):
        gpg("--quick-generate-key", mail, "rsa2048", "sign", "never")
    lines = gpg("--with-colons", "--list-keys", mail).splitlines()
    return next(line.split(":")[9] for line in lines if line.startswith("fpr:"))


def tags(package):
    epoch, _colon, version = package["version"].rpartition(":")
    version, _dash, release = version.rpartition("-")
    lines = [f"Version: {version}", f"Release: {release}", "Summary: stand-in", "License: none"]
    lines += [f"Epoch: {epoch}"] if epoch else []
    for kind in ("requires", "obsoletes", "provides"):
        lines += [f"{kind.title()}: {package[kind]}"] if package.get(kind) else []
    return [*lines, "AutoReqProv: no", *(["BuildArch: noarch"] if package.get("noarch") else [])]


def own_folders(path):
    """The toolkit's packages own their folder, which rpm removes with them."""
    parents = map(str, Path(path).parents)
    return [f"%dir {parent}" for parent in parents if parent.startswith("/usr/local/cuda-")]


def spec(packages):
    """One spec for all: every package is a subpackage with a version of its own."""
    described, install, listed = [], ["%install"], []
    for package in packages:
        name = package["name"]
        described += [f"%package -n {name}", *tags(package), f"%description -n {name}", "stand-in"]
        listed.append(f"%files -n {name}")
        own = {f"/usr/share/doc/{name}/standin": f"{name} {package['version']}\n"}
        for path, text in {**own, **package.get("files", {})}.items():
            source = TOP / "files" / name / path.lstrip("/")
            source.parent.mkdir(parents=True, exist_ok=True)
            source.write_text(text)
            mode = "0755" if "/bin/" in path else "0644"
            install.append(f"install -D -m {mode} {source} %{{buildroot}}{path}")
            listed += [path, *own_folders(path)]
    return HEAD + "\n".join([*described, *install, *listed, ""])


def build(packages, folder):
    """Packages of the same name go into specs of their own."""
    rounds = []
    for package in packages:
        for one in rounds:
            if package["name"] not in {other["name"] for other in one}:
                one.append(package)
                break
        else:
            rounds.append([package])
    file_name = "_build_name_fmt %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm"
    for one in rounds:
        run("rm", "-rf", TOP)
        TOP.mkdir()
        (TOP / "standin.spec").write_text(spec(one))
        settings = (f"_topdir {TOP}", f"_rpmdir {folder}", file_name)
        options = [word for setting in settings for word in ("--define", setting)]
        run("rpmbuild", "-bb", "--quiet", *options, TOP / "standin.spec")


def make(folder, repository):
    folder.mkdir(parents=True, exist_ok=True)
    build(repository["packages"], folder)
    key = fingerprint(repository["key"])
    if repository["signed"] == "packages":
        settings = (f"_gpg_name {key}", f"_gpg_path {HOME}", "__gpg /usr/bin/gpg")
        options = [word for setting in settings for word in ("--define", setting)]
        run("rpmsign", *options, "--addsign", *sorted(folder.glob("*.rpm")))
    run("createrepo_c", "--quiet", folder)
    if repository.get("modules"):
        (TOP / "modules.yaml").write_text(repository["modules"])
        run("modifyrepo_c", "--mdtype=modules", TOP / "modules.yaml", folder / "repodata")
    if repository["signed"] == "index":
        index = folder / "repodata/repomd.xml"
        signature = ["--detach-sign", "--output", f"{index}.asc", index]
        gpg("--local-user", key, "--armor", "--yes", *signature)
    path = Path(repository["key_path"])
    path.parent.mkdir(parents=True, exist_ok=True)
    gpg("--armor", "--yes", "--output", path, "--export", key)
    return key


if __name__ == "__main__":
    wanted = json.load(sys.stdin)
    made = {one["key"]: make(Path(folder), one) for folder, one in wanted.items()}
    print(json.dumps(made))
