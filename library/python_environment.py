#!/usr/bin/python
from __future__ import absolute_import, division, print_function

DOCUMENTATION = {
    "module": "python_environment",
    "short_description": "Create a virtual environment from hash-pinned requirements",
    "description": [
        "Creates the environment with O(interpreter) and installs the requirements with checked hashes, using uv, or the environment's "
        "own pip if O(uv) is not set.",
        "Reads the installed distributions from the environment itself, so that a second run starts no installer.",
        "Recreates an environment that was made with another version of Python, or whose installation was interrupted.",
        "As root it starts no interpreter, uv or environment that other users can write to. All users can read the result.",
    ],
    "options": {
        "path": {"type": "path", "required": True, "description": "Path of the environment."},
        "interpreter": {"type": "path", "default": "/usr/bin/python3", "description": "Absolute path of the Python interpreter."},
        "requirements": {"type": "str", "default": "", "description":
            "Content of a requirements file, with lines C(name==version) or C(name @ file:///path.whl) and their hashes."},
        "uv": {"type": "path", "description": "Path of uv."},
        "find_links": {"type": "str", "default": "", "description": "Folder or URL of a wheelhouse, which is then the only source."},
        "system_packages": {"type": "bool", "default": False, "description":
            "Whether the environment sees the Python packages of the distribution."},
        "dependencies": {"type": "bool", "default": True, "description": "Whether to install dependencies of the requirements."},
        "name": {"type": "str", "default": "", "description": "Name of the environment, for messages."},
    },
}  # fmt: skip

RETURN = r"""
python_version: {description: Full version of the interpreter; null in check mode if it is not installed yet., returned: always, type: str}
packages: {description: "Version of each installed required distribution, by normalised name.", returned: always, type: dict}
"""

import ast
import io
import json
import operator
import os
import re
import shutil
import tempfile

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.python_distributions import UNFINISHED, distributions, normalised, python_version, url_of
from ansible.module_utils.trusted_path import refuse_program
from ansible.module_utils.whole_files import difference, make_folder

PIN = re.compile(r"(?P<name>[A-Za-z0-9._-]+)(?:\[[^]]*\])?\s*(?:==\s*(?P<version>[^\s;\\]+)|@\s*(?P<url>[^\s;\\]+))")

COMPARE = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.GtE: operator.ge, ast.Gt: operator.gt,
}  # fmt: skip

# Prints an interpreter's marker variables. Not from platform.python_version(), which may be 3.13.0rc1 or 3.11.2+.
FACTS = """
import json, os, platform, sys
print(json.dumps({
    "python_full_version": ".".join(str(part) for part in sys.version_info[:3]),
    "python_version": ".".join(str(part) for part in sys.version_info[:2]),
    "sys_platform": "linux" if sys.platform.startswith("linux") else sys.platform,
    "platform_system": platform.system(),
    "platform_machine": platform.machine(),
    "os_name": os.name,
    "platform_python_implementation": platform.python_implementation(),
    "implementation_name": sys.implementation.name if hasattr(sys, "implementation") else "cpython",
}))
"""


def holds(marker, facts):
    """True if an environment marker of a lock file, such as python_full_version < '3.10' and sys_platform == 'linux', holds.

    A marker is written as an expression of Python: comparisons of a variable with a text, and, or, and parentheses.
    """

    def value(node):
        if isinstance(node, ast.BoolOp):
            return (all if isinstance(node.op, ast.And) else any)([value(each) for each in node.values])
        name, compare, text = node.left.id, COMPARE[type(node.ops[0])], ast.literal_eval(node.comparators[0])
        if not name.startswith("python_"):
            return {operator.eq: facts[name] == text, operator.ne: facts[name] != text}[compare]
        bound = numbers(text.replace(".*", ""))
        # Compare only as many parts as the bound has: 3.12.1 is not below 3.12, and 3.11.7 equals 3.11.
        return compare(numbers(facts[name])[: len(bound)], bound)

    try:
        return value(ast.parse(marker, mode="eval").body)
    except (SyntaxError, AttributeError, KeyError):
        raise ValueError("unsupported marker %r" % marker)


def numbers(version):
    return tuple(int(part) for part in version.split("."))


def pins(requirements, facts):
    """{name: (version, URL)} of a requirements file's pins for an interpreter with these marker variables."""
    pinned = {}
    for line in requirements.replace("\\\n", " ").splitlines():
        line = line.split(" #")[0].strip()
        if not line or line.startswith(("#", "-")):
            continue
        match = PIN.match(line)
        if not match:
            raise ValueError("expected name==version or name @ file://..., found %r" % line)
        marker = line.split(" --hash")[0].partition(";")[2].strip()
        if not marker or holds(marker, facts):
            pinned[normalised(match.group("name"))] = (match.group("version"), match.group("url"))
    return pinned


def installed(path):
    """{name: (version, URL it was installed from or None)} of an environment, without starting it."""
    return dict((name, (version, url_of(folder))) for name, (version, folder) in distributions(path).items())


def lacks(wanted, have):
    """Names of the pins that are not installed in the pinned version."""
    return sorted(
        name
        for name, (version, url) in wanted.items()
        if name not in have or (url is not None and have[name][1] != url) or (version is not None and have[name][0] != version)
    )


def listing(packages):
    return "".join("%s==%s\n" % (name, packages[name][0]) for name in sorted(packages))


class Environment(object):
    def __init__(self, module):
        self.module = module
        self.path = module.params["path"]
        self.label = module.params["name"] or self.path

    def run(self, argv, what):
        environment = {
            "LC_ALL": "C.UTF-8",
            "UV_NO_CONFIG": "1",
            "UV_NO_PROGRESS": "1",
            "UV_LOCK_TIMEOUT": "60",
            "UV_PYTHON_DOWNLOADS": "never",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_NO_INPUT": "1",
        }
        code, output, errors = self.module.run_command(argv, environ_update=environment, cwd="/")
        if code != 0:
            self.module.fail_json(
                msg="%s: %s failed: %s" % (self.label, what, (errors or output).strip()[-3000:]),
                rc=code,
                cmd=argv,
            )
        return output

    def interpreter_facts(self):
        """The marker variables of the interpreter."""
        interpreter = self.module.params["interpreter"]
        if not os.access(interpreter, os.X_OK):
            if self.module.check_mode:
                # Without check mode, the play would have installed it by now.
                self.module.exit_json(changed=True, python_version=None, packages={})
            self.module.fail_json(msg="%s: this node has no interpreter %s" % (self.label, interpreter))
        return json.loads(self.run([interpreter, "-I", "-S", "-c", FACTS], interpreter))

    def make(self):
        interpreter, uv = self.module.params["interpreter"], self.module.params["uv"]
        make_folder(os.path.dirname(self.path))
        if os.path.lexists(self.path):
            shutil.rmtree(self.path)
        seen = ["--system-site-packages"] if self.module.params["system_packages"] else []
        if uv:
            self.run([uv, "venv", "--quiet", "--python", interpreter] + seen + [self.path], "uv venv")
        else:
            self.run([interpreter, "-m", "venv"] + seen + [self.path], "python3 -m venv (package python3-venv)")

    def install(self, requirements):
        python = os.path.join(self.path, "bin", "python")
        uv, links = self.module.params["uv"], self.module.params["find_links"]
        if uv:
            # The unprivileged user cannot write .pyc files here, so they are compiled now.
            argv = [uv, "pip", "install", "--python", python, "--no-cache", "--compile-bytecode"]
        else:
            # The pins were chosen for this Python. uv declares Python 3.8 or newer, but it is a binary
            # that needs no Python to run.
            argv = [python, "-m", "pip", "install", "--no-cache-dir", "--ignore-requires-python"]
        argv += ["--quiet", "--require-hashes"]
        if links:
            argv += ["--no-index", "--find-links", links]
            if links.startswith("http://") and not uv:
                # An untrusted host is safe, because every file's hash is checked.
                argv += ["--trusted-host", re.sub(r"^http://([^/]+).*", r"\1", links)]
        if not self.module.params["dependencies"]:
            argv += ["--no-deps"]
        handle, name = tempfile.mkstemp(suffix=".txt", dir=self.module.tmpdir)
        with io.open(handle, "wb") as stream:
            # In Python 2 it is already bytes.
            stream.write(requirements if isinstance(requirements, bytes) else requirements.encode("utf-8"))
        mark = os.path.join(self.path, UNFINISHED)
        with open(mark, "w"):
            pass
        self.run(argv + ["-r", name], "installing the requirements")
        # Also remove uv's lock: it is world-writable, so any user could block the next installation.
        for left in (os.path.join(self.path, ".lock"), mark):
            if os.path.exists(left):
                os.unlink(left)


def main():
    module = AnsibleModule(DOCUMENTATION["options"], supports_check_mode=True)
    os.umask(0o022)
    environment = Environment(module)
    for program in (module.params["interpreter"], module.params["uv"], os.path.join(module.params["path"], "bin/python")):
        refuse_program(module, program, environment.label)
    path, requirements = module.params["path"], module.params["requirements"]
    facts = environment.interpreter_facts()
    version = facts["python_full_version"]
    try:
        wanted = pins(requirements, facts)
    except ValueError as error:
        module.fail_json(msg="%s: requirements: %s" % (environment.label, error))

    made = numbers(python_version(path) or "0")[:2] == numbers(version)[:2]
    before = installed(path) if made else {}
    missing = lacks(wanted, before)
    after = before
    if module.check_mode:
        after = dict(before, **dict((name, (wanted[name][0] or wanted[name][1], None)) for name in missing))
    else:
        if not made:
            environment.make()
        if missing:
            environment.install(requirements)
        after = installed(path)
        still = lacks(wanted, after)
        if still:
            module.fail_json(
                msg="%s: the installer succeeded, but these packages do not have their pinned versions: %s"
                % (environment.label, ", ".join(still))
            )
    module.exit_json(
        changed=not made or after != before,
        python_version=version,
        packages=dict((name, after[name][0]) for name in wanted if name in after),
        diff=difference(path, listing(before), listing(after)),
    )


if __name__ == "__main__":
    main()
