"""What keeps kernels from a backend is found by looking, and said with what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jupyter_salus.hub.surroundings import apparmor, loadable, private_tmp, rights, selinux, surroundings
from jupyter_salus.protocol.address import Address
from tests.hub.conftest import CONTAINER, Shared

OWN = Address("/tmp/jupyter-salus-0-x/backend.sock", "own")
SYSTEM = Address("/run/jupyter-salus/backend.sock", "system")


def write(root: Path, name: str, text: str) -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return root


def test_selinux(short_tmp: Path) -> None:
    assert selinux(short_tmp)[1] == "ok"
    write(short_tmp, "sys/fs/selinux/enforce", "1")
    write(short_tmp, "proc/self/attr/current", "system_u:system_r:container_t:s0:c1,c2\0")
    assert selinux(short_tmp)[1] == "note"
    assert "container_t" in selinux(short_tmp)[2]
    assert apparmor(short_tmp) == ("AppArmor", "ok", "not here")
    write(short_tmp, "proc/self/attr/current", "unconfined_u:unconfined_r:unconfined_t:s0")
    assert selinux(short_tmp)[1] == "ok"


def test_apparmor(short_tmp: Path) -> None:
    write(short_tmp, "proc/self/attr/current", "unconfined\n")
    assert apparmor(short_tmp) == ("AppArmor", "ok", "unconfined")
    write(short_tmp, "proc/self/attr/apparmor/current", "docker-default (enforce)\n")
    assert apparmor(short_tmp)[1] == "note"
    assert "docker-default" in apparmor(short_tmp)[2]


def test_a_tmp_of_its_own_matters_for_an_address_in_tmp_alone(short_tmp: Path) -> None:
    line = "{} 2 0:1 {} /tmp rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
    write(short_tmp, "proc/self/mountinfo", line.format(1, "/"))
    assert private_tmp(OWN, short_tmp)[1] == "ok"
    write(short_tmp, "proc/self/mountinfo", line.format(1, "/tmp/systemd-private-abc-x.service-y/tmp"))
    assert private_tmp(OWN, short_tmp)[1] == "problem"
    assert private_tmp(SYSTEM, short_tmp)[1] == "ok"


def test_a_library_that_others_cannot_read_is_a_problem_for_a_shared_backend(short_tmp: Path) -> None:
    short_tmp.chmod(0o755)
    library = write(short_tmp, "open/guard.so", "") / "open" / "guard.so"
    assert loadable(library, shared=True)[1] == "ok"
    library.chmod(0o600)
    assert (loadable(library, shared=True)[1], loadable(library, shared=False)[1]) == ("problem", "note")
    library.chmod(0o644)
    library.parent.chmod(0o700)
    assert str(library.parent) in loadable(library, shared=True)[2]
    assert loadable(short_tmp / "none.so", shared=True)[1] == "problem"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can mount")
def test_a_library_on_a_noexec_disk_is_a_problem(short_tmp: Path) -> None:
    code = (
        "from pathlib import Path; from jupyter_salus.hub.surroundings import loadable; "
        "Path('/mnt/guard.so').touch(); print(*loadable(Path('/mnt/guard.so'), False))"
    )
    begin = 'mount -t tmpfs -o noexec,mode=0755 none /mnt && exec "$1" -c "$2"'
    told = subprocess.run(
        [*CONTAINER, "sh", "-c", begin, "sh", sys.executable, code], capture_output=True, text=True, check=True
    ).stdout
    assert "problem" in told
    assert "noexec" in told


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make pid namespaces")
def test_a_backend_in_a_pod_without_the_hosts_processes_says_so(short_tmp: Path, wait_until) -> None:
    address = Address(str(short_tmp / "b.sock"), "configured")
    command = [*CONTAINER, sys.executable, "-m", "jupyter_salus.backend", f"--socket={address.path}", "--device=host"]
    with (short_tmp / "log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        wait_until(lambda: list(rights(address)), "the backend to answer")
        findings = {about: (level, text) for about, level, text in rights(address)}
        assert findings["process ids"][0] == "problem"
        assert "hostPID: true" in findings["process ids"][1]
        assert "a pid namespace of its own" in findings["rights"][1]
    finally:
        process.kill()  # unshare ends the namespace with itself
        process.wait()


@pytest.mark.skipif(os.getuid() != 0, reason="a backend of root's")
def test_the_backend_says_what_it_may_do(shared: Shared) -> None:
    address = Address(shared.path, "configured")
    (only,) = list(rights(address))
    assert only[:2] == ("rights", "ok")
    assert "may lock and checkpoint any user's process" in only[2]
    names = [finding[0] for finding in surroundings(address, [Path(__file__)])]
    assert names == ["rights", "SELinux", "AppArmor", "private /tmp", "loading test_surroundings.py"]


def test_where_no_backend_answers_nothing_is_said_of_its_rights(short_tmp: Path) -> None:
    assert list(rights(Address(str(short_tmp / "b.sock"), "configured"))) == []
