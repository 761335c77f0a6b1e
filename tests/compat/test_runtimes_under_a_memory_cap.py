"""Node, Java and Go reserve far more address space than they use: under a cap of memory they run as they do outside."""

from __future__ import annotations

import resource
import subprocess

import pytest

from ringfence.sync import Sandbox, SandboxConfig, SandboxLimits

MIB = 1 << 20
WASM = """
new WebAssembly.Memory({initial: 1, maximum: 10});
fetch("http://127.0.0.1:9").catch(() => console.log("no server", process.version));
"""
RUNTIMES = {
    "node": ["node", "-e", WASM],
    "java": ["java", "-version"],
    "go": ["go", "version"],
}


@pytest.mark.parametrize("cap", [512 * MIB, 2048 * MIB], ids=["512 MiB", "2 GiB"])
def test_runtimes_run_under_a_cap_of_memory_as_they_do_outside(tier: str, cap: int) -> None:
    with Sandbox(SandboxConfig(tier=tier, limits=SandboxLimits(memory_bytes=cap))) as box:
        for name, argv in RUNTIMES.items():
            inside = box.run(argv)
            outside = subprocess.run(argv, capture_output=True, text=True, check=False)
            assert (name, inside.exit_code, inside.stdout) == (name, outside.returncode, outside.stdout), inside.stderr
            assert not inside.memory_exceeded and inside.stderr == outside.stderr


def test_a_cap_of_address_space_would_stop_them() -> None:
    def capped() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (512 * MIB, 512 * MIB))

    for name in ("node", "java"):
        done = subprocess.run(RUNTIMES[name], capture_output=True, check=False, preexec_fn=capped)
        assert done.returncode != 0, name
