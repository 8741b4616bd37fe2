"""The names by which playbooks and roles call functions of dlperf_runner."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

# The package that lies beside these playbooks, as `python -m dlperf_runner` takes it there: another
# one may be installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
try:
    from dlperf_runner.doctor import fabric, links
    from dlperf_runner.plan import inventory
    from dlperf_runner.provision import (
        adoption,
        arguments,
        datasets,
        environments,
        infiniband,
        nvidia_driver,
        preflight,
        slurm,
        ssh_mesh,
        vendor,
    )
except ModuleNotFoundError as error:
    # Ansible makes any other exception a warning, and then lacks each filter without a reason.
    print(
        f"{sys.executable} lacks {error.name}, which dlperf_runner needs. Run `make setup` in the"
        " clone, then .venv/bin/ansible-playbook; or pip install '.[cluster]' for this Python",
        file=sys.stderr,
    )
    raise SystemExit(2) from None

FILTERS: dict[str, Callable[..., Any]] = {
    "adoption_files": adoption.files,
    "adoption_replacement_refusal": adoption.replacement_refusal,
    "adoption_report": adoption.report,
    "bench_datasets": datasets.of_runs,
    "bench_ready": datasets.ready_runs,
    "bootstrap_choice": preflight.choice,
    "bootstrap_problem": preflight.has_problem,
    "container_command": ssh_mesh.container_command,
    "container_engine": arguments.default_engine,
    "container_engine_refusal": arguments.engine_refusal,
    "dataset_digests": datasets.digests,
    "dataset_facts": datasets.facts,
    "dataset_sets": datasets.sets,
    "driver_build_failure": nvidia_driver.build_failure,
    "driver_headers_refusal": nvidia_driver.headers_refusal,
    "driver_image_refusal": nvidia_driver.image_refusal,
    "driver_is_newer": vendor.is_newer,
    "driver_others": nvidia_driver.others,
    "driver_pins": nvidia_driver.pins,
    "driver_reboot_needed": nvidia_driver.reboot_needed,
    "driver_secure_boot_refusal": nvidia_driver.secure_boot_refusal,
    "fabric_address_commands": infiniband.address_commands,
    "fabric_address_files": infiniband.address_files,
    "fabric_load_failure": infiniband.load_failure,
    "fabric_network": infiniband.network_of,
    "fabric_problems": links.problems,
    "fabric_refusal": infiniband.refusal,
    "fabric_stale_driver": fabric.stale_driver,
    "fabric_unaddressed": infiniband.unaddressed,
    "framework_groups": environments.groups,
    "framework_inputs": environments.inputs,
    "framework_offer": environments.offer,
    "framework_places": environments.places,
    "framework_seen": environments.seen,
    "framework_stand": environments.stand,
    "gpu_node_system_refusal": arguments.system_refusal,
    "gres_conf": slurm.gres,
    "horovod_options": environments.horovod_build_options,
    "horovod_unproven": environments.horovod_unproven,
    "horovod_wanted": environments.horovod_inputs,
    "horovod_wheel_refusal": environments.wheel_refusal,
    "inventory_refusal": inventory.refusal,
    "login_check": ssh_mesh.login_check,
    "mpirun_argv": ssh_mesh.mpi_argv,
    "mpirun_next": ssh_mesh.next_of,
    "node_base_hosts": ssh_mesh.hosts,
    "node_base_mirror_key": vendor.mirror_key,
    "nvlink_domains": ssh_mesh.nvlink_domains,
    "openmpi_refusal": ssh_mesh.build_refusal,
    "preflight_facts": preflight.facts,
    "provision_arguments": arguments.arguments,
    "provision_of_all": arguments.of_all,
    "provision_only": arguments.only,
    "provision_proxy": preflight.proxy_environment,
    "provision_query": arguments.query,
    "provision_refusal": arguments.refusal,
    "provision_setting": arguments.setting,
    "python_env_refusal": environments.python_refusal,
    "slurm_conf": slurm.conf,
    "slurm_names": slurm.names,
    "slurm_prolog_files": slurm.prolog,
    "slurm_topology": slurm.topology,
    "slurm_topology_refusal": slurm.topology_refusal,
    "ssh_mesh_addresses": ssh_mesh.addresses,
    "ssh_mesh_connections": ssh_mesh.connections,
    "ssh_mesh_members": ssh_mesh.members,
    "ssh_mesh_partners": ssh_mesh.partners,
    "ssh_mesh_stands": ssh_mesh.stands,
    "ssh_mesh_unaddressed": ssh_mesh.unaddressed,
    "stack_document": arguments.stack_document,
    "stack_mpirun": arguments.stack_mpirun,
    "stack_rails": arguments.stack_rails,
    "sudo_problem": preflight.sudo_problem,
    "vendor_address": vendor.address,
    "vendor_file_refusal": vendor.file_refusal,
    "vendor_last_words": vendor.last_words,
    "vendor_parts": vendor.parts,
    "vendor_refusal": vendor.refusal,
    "vendor_release": vendor.release,
    "vendor_repository": vendor.repository,
    "vendor_source": vendor.source,
    "vendor_source_refusal": vendor.source_refusal,
    "vendor_system": vendor.system_of,
    "vendor_too_old": vendor.too_old,
}


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return FILTERS
