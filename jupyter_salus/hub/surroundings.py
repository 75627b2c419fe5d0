"""What around a shared backend keeps kernels from it, or it from them: looked at, for `doctor`.

Each finding is what about, how it stands (`ok`, `note`, `problem`), and what it means for the person.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..errors import SalusError
from ..protocol.address import Address
from ..protocol.client import Client

Finding = tuple[str, str, str]
ROOT = Path("/")


def surroundings(address: Address, needed: Sequence[Path], root: Path = ROOT) -> Iterator[Finding]:
    """All findings. `needed`: the files that kernels load, the guard's library and the guest; `root` is for tests."""
    yield from rights(address)
    yield selinux(root)
    yield apparmor(root)
    yield private_tmp(address, root)
    for path in needed:
        yield loadable(path, shared=address.kind == "system")


def rights(address: Address) -> Iterator[Finding]:
    """What the backend there may do, as it says itself; nothing where none answers: that is told elsewhere."""
    try:
        with Client(address.path) as client:
            about = client.ask("about")
    except SalusError:
        return
    yield "rights", "ok", f"the backend runs as {about['powers']}"
    unseen = about["unseen_peers"]
    if unseen:
        yield (
            "process ids",
            "problem",
            f"{unseen} of its connections come from pid namespaces that it can't see into: the end and the memory of their "
            "processes can't be watched; a backend in a pod needs `hostPID: true`, one in a container `--pid=host`",
        )
    if about["unmanaged"]:
        names = ", ".join(f"{one['command']} of {one['user']}" for one in about["unmanaged"][:5])
        yield "unmanaged use", "note", f"without a session use the device: {names}"


def selinux(root: Path = ROOT) -> Finding:
    """Whether a policy is enforced that may keep confined programs from the socket."""
    try:
        enforced = (root / "sys/fs/selinux/enforce").read_text("ascii").strip() == "1"
        context = (root / "proc/self/attr/current").read_text("ascii", "replace").strip("\0\n ")
    except OSError:
        return "SELinux", "ok", "not here"
    if not enforced or ":unconfined_t:" in context:
        return "SELinux", "ok", f"{'enforcing' if enforced else 'permissive'}; this runs as {context}"
    return (
        "SELinux",
        "note",
        f"enforcing, and this runs confined as {context}: if kernels don't find the backend, look for denials of `connectto` "
        "with `ausearch -m avc -ts recent`; containers need `--security-opt label=type:container_runtime_t` or a module",
    )


def apparmor(root: Path = ROOT) -> Finding:
    """Whether a profile confines this process, and so perhaps kernels."""
    for name in ("proc/self/attr/apparmor/current", "proc/self/attr/current"):
        try:
            profile = (root / name).read_text("ascii", "replace").strip("\0\n ")
        except OSError:
            continue
        if not profile or ":" in profile:
            continue  # SELinux has its context there
        if profile.startswith("unconfined"):
            return "AppArmor", "ok", "unconfined"
        return (
            "AppArmor",
            "note",
            f"confined by {profile}: it must allow `unix` connections to the backend's socket, and `ptrace (read)` for a "
            "backend that measures other users' kernels",
        )
    return "AppArmor", "ok", "not here"


def private_tmp(address: Address, root: Path = ROOT) -> Finding:
    """Whether this process has a `/tmp` of its own, in which nobody else finds what it puts there."""
    try:
        lines = (root / "proc/self/mountinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        return "private /tmp", "ok", "mounts can't be read here"
    # The fields are: id, parent, device, the root of the mount in its file system, and where it is mounted.
    private = any(line.split()[4] == "/tmp" and "systemd-private" in line.split()[3] for line in lines if line.strip())
    if not private:
        return "private /tmp", "ok", "/tmp is the host's"
    if address.path.startswith("/tmp/"):
        return (
            "private /tmp",
            "problem",
            f"this service has a /tmp of its own (PrivateTmp), so {address.path} is another one than elsewhere: use a backend "
            "in /run/jupyter-salus, or PrivateTmp=no",
        )
    return "private /tmp", "ok", f"a /tmp of its own, which is no harm: the backend's address is {address.path}"


def loadable(path: Path, shared: bool) -> Finding:
    """Whether kernels, other users' among them, can load a file."""
    about = f"loading {path.name}"
    try:
        flags = os.statvfs(path).f_flag
        mode = path.stat().st_mode
    except OSError as error:
        return about, "problem", f"cannot look at {path}: {error.strerror}"
    if path.suffix == ".so" and flags & os.ST_NOEXEC:
        return (
            about,
            "problem",
            f"{path} is on a disk that is mounted noexec: kernels can't load it, and run without a guard",
        )
    closed = [str(one) for one in path.parents if not one.stat().st_mode & 0o001]
    if shared and (closed or not mode & 0o004):
        where = closed[-1] if closed else str(path)
        return about, "problem", f"other users can't read {path}: {where} is closed to them; install where all may read"
    if closed or not mode & 0o004:
        return about, "note", f"{path} can be read by you alone: enough for kernels of yours, not for a hub's users"
    return about, "ok", str(path)
