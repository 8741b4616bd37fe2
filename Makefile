# make demo | test | test-AREA | test-all | setup | wheel | lab-up | lab-down | lint | docs-site | lock | clean
SHELL := /bin/bash
.ONESHELL:
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
# make setup ANSIBLE=2.16: the Ansible for nodes with an older Python, in a virtual environment beside .venv.
ANSIBLE ?=
VENV := .venv$(if $(ANSIBLE),-$(ANSIBLE))
BIN := $(CURDIR)/$(VENV)/bin
export PATH := $(BIN):$(PATH)
export ANSIBLE_CONFIG := $(CURDIR)/ansible.cfg
# Without bytecode, each start of `dlperf` compiles the package, which takes three times the time of the start.
unexport PYTHONDONTWRITEBYTECODE

# Programs that the lab and the mirror need, as command:package
SYSTEM := mmdebstrap:mmdebstrap newuidmap:uidmap ip:iproute2 ssh:openssh-client nc.openbsd:netcat-openbsd \
          gpg:gpg gpgv:gpgv apt-ftparchive:apt-utils git:git unshare:util-linux
# Programs that only the tests need: a browser that opens the reports
TEST_SYSTEM := chromium:chromium
SYSTEM_FILES := /usr/share/keyrings/debian-archive-keyring.gpg:debian-archive-keyring

SUITES := test-containers test-build test-gpu-roles test-nodes test-campaigns test-pytorch test-jax test-tensorflow-paddle test-slurm test-faults test-hours test-versions

.PHONY: help setup system test-system demo test $(SUITES) test-all unit lint wheel lab-up lab-down docs docs-site drift gpu-kit lock clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 24

setup: system $(VENV)/.controller ## Set up the controller: system packages (listed first), .venv, this clone in it. ANSIBLE=2.16 for old nodes

$(VENV)/.controller: .ci/install-clone requirements/$(if $(ANSIBLE),ansible-$(ANSIBLE),controller).txt
	@$(call venv)
	echo "Installing Ansible and the packages for analysis into $(VENV) (about a minute)"
	$(BIN)/python -m pip install --quiet --quiet --require-hashes -r $(filter %.txt,$^)
	touch $@

.venv/.dev: .ci/install-clone requirements/dev.txt
	@test -z "$(ANSIBLE)" || { echo "The tools for development have one Ansible: leave ANSIBLE out" >&2; exit 1; }
	$(call venv)
	$(BIN)/python -m pip install --quiet --quiet --require-hashes -r $(filter %.txt,$^)
	touch $@ .venv/.controller

define venv
	$(PYTHON) -c 'import sys; sys.exit("dlperf_runner needs Python 3.11 or newer, this is " + sys.version.split()[0]) if sys.version_info < (3, 11) else None'
	test -x $(BIN)/python || { echo "Making $(VENV) (about a minute)"; $(PYTHON) -m venv $(VENV); }
	$(BIN)/python .ci/install-clone
endef

system:
	@$(call install,$(SYSTEM))

test-system:
	@$(call install,$(SYSTEM) $(TEST_SYSTEM))

define install
	missing=()
	for pair in $(1); do command -v "$${pair%%:*}" >/dev/null || PATH="$$PATH:/usr/sbin:/sbin" command -v "$${pair%%:*}" >/dev/null || missing+=("$${pair#*:}"); done
	for pair in $(SYSTEM_FILES); do test -e "$${pair%%:*}" || missing+=("$${pair#*:}"); done
	$(PYTHON) -c 'import ensurepip' 2>/dev/null || missing+=(python3-venv)
	(( $${#missing[@]} )) || exit 0
	if (( EUID == 0 )); then as=(); elif sudo -n true 2>/dev/null; then as=(sudo -n); else
	  echo "Missing packages, and you have no permission to install them. Ask an administrator to run: apt-get install $${missing[*]}" >&2; exit 1; fi
	echo "Installing with apt: $${missing[*]}"
	"$${as[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq update
	"$${as[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends -y "$${missing[@]}" >/dev/null
endef

demo: setup ## From a clean clone to a speed-up table: lab, provisioning, benchmark, table
	@exec .ci/demo

lab-up: setup ## Start the embedded lab
	@ansible-playbook playbooks/lab.yml

lab-down: ## Stop the embedded lab
	@ansible-playbook playbooks/lab.yml -e lab_state=absent

lint: .venv/.dev ## Run linters and type checks
	ansible-lint --offline --strict & # takes longer than all others together
	trap "kill $$! 2>/dev/null || true" EXIT
	ruff check .
	ruff format --check .
	mypy
	yamllint --strict .
	wait $$!

# The tests of a file share a lab or what else they start from, so one process runs them, and makes it once. Files run in
# order, labs first, so that the longest is not the last. Three processes keep two cores busy: many tests wait. Those of faults and
# of Slurm wait most of the time.
PROCESSES := 3
TESTS = pytest -q -n $(PROCESSES) --dist loadfile --no-loadscope-reorder
test-faults test-slurm test-all: PROCESSES := 4

unit: test-system .venv/.dev ## Run the tests that need no lab
	$(TESTS) -m 'not lab and not heavy'

test: lint test-system ## Run the linters and all tests that are not in a suite
	$(TESTS) -m 'not heavy'

# Longer tests by area, each with pytest's marker of the same name. .ci/suites.toml lists their durations.
test-gpu-roles: ## Test the roles for GPUs and network fabrics
test-build: ## Test the builds of OpenMPI and Python
test-containers: ## Test benchmarks in containers
test-nodes: ## Test reboots, removal, single roles and 64 nodes
test-campaigns: ## Test campaigns from provisioning to the report, their secrets, and 40 runs
test-pytorch: ## Test PyTorch's programs on two nodes with Debian 13
test-jax: ## Test JAX's programs on two nodes
test-faults: ## Test faults during campaigns on two nodes, and whose the nodes are
test-slurm: ## Test campaigns as jobs of Slurm
test-tensorflow-paddle: ## Test the programs in TensorFlow 2 and PaddlePaddle 3 on two nodes
test-hours: ## Test the first hours of the pages on a fresh Debian 12
test-versions: ## Test with other releases of Ansible, Debian and Python
$(SUITES): test-%: test-system .venv/.dev
	$(TESTS) $$(grep -rl --include='test_*.py' 'mark\.$(subst -,_,$*)\b' tests | sort) -m $(subst -,_,$*)

# One run, so that the last files of a suite leave no core idle.
test-all: lint test-system ## Run every test
	$(TESTS)

wheel: $(VENV)/.controller ## Build the package into .cache/wheel
	rm -rf .cache/wheel
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir .cache/wheel .
	@echo "Install it: pip install '$$(echo $(CURDIR)/.cache/wheel/*.whl)[report]'"

docs: .venv/.dev ## Write the tables of variables into the roles' READMEs
	$(BIN)/python -m tools.role_readme

docs-site: .venv/.dev ## Build the documentation site into .cache/site
	NO_MKDOCS_2_WARNING=1 mkdocs build --strict
	@echo "Read it with: python -m http.server --directory .cache/site"

drift: .venv/.dev ## Say what the newest versions of programs no longer print as the log formats read it
	python -m tools.drift

gpu-kit: setup ## Pack what runs on a machine with a GPU into .cache/gpu-kit. MIRROR=DIR takes nccl-tests along
	rm -rf .cache/gpu-kit
	python tests/gpu/pack.py .cache/gpu-kit $(if $(MIRROR),--mirror $(MIRROR))

lock: ## Recompile the locked requirements (with hashes, without index URLs)
	for name in controller dev; do
	  uv pip compile --quiet --upgrade --generate-hashes --no-header --no-annotate --python-version 3.11 \
	    $$([ $$name = dev ] && echo "--constraint requirements/controller.txt") \
	    --output-file requirements/$$name.txt requirements/$$name.in
	done

clean: lab-down ## Remove all generated files
	rm -rf .venv .venv-* .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis .ansible
