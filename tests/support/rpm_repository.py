"""Make signed repositories of stand-in rpm packages; runs on a lab node, which has rpmbuild.

Standard input: {folder: {"packages": [...], "key": name, "key_path": path, "signed": packages, index or "", "modules": text}}.
A package: name, version (epoch:version-release), requires, obsoletes, files {path: content}, noarch.
Standard output: {key: fingerprint}.
"""

import json
import os
import subprocess
import sys

HOME, TOP = "/root/standin-keys", "/root/standin-build"


def run(*argv, **options):
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **options)
    if done.returncode != 0:
        sys.exit(f"{argv}: {done.stdout[-3000:]}")
    return done.stdout


def gpg(*arguments):
    return run("gpg", "--homedir", HOME, "--batch", "--quiet", "--pinentry-mode", "loopback", "--passphrase", "", *arguments)


def fingerprint(name):
    os.makedirs(HOME, mode=0o700, exist_ok=True)
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
    lines += [f"{kind.title()}: {text}" for kind in ("requires", "obsoletes", "provides") if (text := package.get(kind))]
    return lines + (["BuildArch: noarch"] if package.get("noarch") else [])


def spec(packages):
    """One spec for all: every package is a subpackage with a version of its own."""
    lines = ["Name: standin", "Version: 0", "Release: 0", "Summary: stand-in", "License: none"]
    lines += ["%global debug_package %{nil}", "%global __os_install_post %{nil}", "%global _build_id_links none", "AutoReqProv: no"]
    lines += ["%description", "stand-in"]
    install, files = ["%install"], []
    for package in packages:
        name = package["name"]
        lines += [f"%package -n {name}", *tags(package), "AutoReqProv: no", f"%description -n {name}", "stand-in"]
        files += [f"%files -n {name}"]
        content = {f"/usr/share/doc/{name}/standin": f"{name} {package['version']}\n", **package.get("files", {})}
        for path, text in content.items():
            source = f"{TOP}/files/{name}{path}"
            os.makedirs(os.path.dirname(source), exist_ok=True)
            with open(source, "w") as stream:
                stream.write(text)
            mode = "0755" if "/bin/" in path else "0644"
            install += [f"install -D -m {mode} {source} %{{buildroot}}{path}"]
            files += [path]
    return "\n".join([*lines, *install, *files, ""])


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
    for one in rounds:
        run("rm", "-rf", TOP)
        os.makedirs(TOP)
        with open(f"{TOP}/standin.spec", "w") as stream:
            stream.write(spec(one))
        define = ["--define", f"_topdir {TOP}", "--define", f"_rpmdir {folder}", "--define", "_build_name_fmt %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm"]
        run("rpmbuild", "-bb", "--quiet", *define, f"{TOP}/standin.spec")


def make(folder, repository):
    os.makedirs(folder, exist_ok=True)
    build(repository["packages"], folder)
    key = fingerprint(repository["key"])
    rpms = [os.path.join(folder, name) for name in sorted(os.listdir(folder)) if name.endswith(".rpm")]
    if repository["signed"] == "packages":
        options = ["--define", f"_gpg_name {key}", "--define", f"_gpg_path {HOME}", "--define", "__gpg /usr/bin/gpg"]
        run("rpmsign", *options, "--addsign", *rpms)
    run("createrepo_c", "--quiet", folder)
    if repository.get("modules"):
        with open(f"{TOP}/modules.yaml", "w") as stream:
            stream.write(repository["modules"])
        run("modifyrepo_c", "--mdtype=modules", f"{TOP}/modules.yaml", f"{folder}/repodata")
    if repository["signed"] == "index":
        gpg("--local-user", key, "--armor", "--yes", "--detach-sign", "--output", f"{folder}/repodata/repomd.xml.asc", f"{folder}/repodata/repomd.xml")
    os.makedirs(os.path.dirname(repository["key_path"]), exist_ok=True)
    gpg("--armor", "--yes", "--output", repository["key_path"], "--export", key)
    return key


if __name__ == "__main__":
    wanted = json.load(sys.stdin)
    print(json.dumps({one["key"]: make(folder, one) for folder, one in wanted.items()}))
