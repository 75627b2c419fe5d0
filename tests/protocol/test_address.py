"""Where a backend listens, and what keeps it from listening there."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from jupyter_salus.errors import BadAddress
from jupyter_salus.protocol import address
from jupyter_salus.protocol.address import Address, check, check_reachable, find, prepare
from jupyter_salus.protocol.client import gone
from jupyter_salus.protocol.directory import state_directory


@pytest.fixture(autouse=True)
def no_system_directory(monkeypatch: pytest.MonkeyPatch, short_tmp: Path) -> None:
    monkeypatch.setattr(address, "SYSTEM_DIRECTORY", str(short_tmp / "no-system"))


def test_the_setting_comes_before_the_environment() -> None:
    assert find({"JUPYTER_SALUS_SOCKET": "/tmp/b.sock"}, "/tmp/a.sock") == Address("/tmp/a.sock", "configured")
    assert find({"JUPYTER_SALUS_SOCKET": "/tmp/b.sock"}) == Address("/tmp/b.sock", "configured")


def test_a_relative_setting_becomes_absolute(monkeypatch: pytest.MonkeyPatch, short_tmp: Path) -> None:
    monkeypatch.chdir(short_tmp)
    assert find({}, "a.sock").path == str(short_tmp / "a.sock")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a directory that root owns")
def test_the_systems_directory_comes_before_the_own_one(monkeypatch: pytest.MonkeyPatch, short_tmp: Path) -> None:
    (short_tmp / "system").mkdir()
    monkeypatch.setattr(address, "SYSTEM_DIRECTORY", str(short_tmp / "system"))
    assert find({}) == Address(str(short_tmp / "system" / "backend.sock"), "system")


def test_the_own_address_names_uid_and_boot(short_tmp: Path) -> None:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().replace("-", "")[:8]
    found = find({"HOME": "/home/ada"})
    assert found == Address(f"/tmp/jupyter-salus-{os.getuid()}-{boot}/backend.sock", "own")
    assert find({"JUPYTER_SALUS_RUN_DIR": str(short_tmp)}).path.startswith(f"{short_tmp}/jupyter-salus-")


def test_without_a_boot_id_the_own_address_is_still_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(address, "_BOOT_ID", "/proc/no-such-file")
    assert find({}).path == f"/tmp/jupyter-salus-{os.getuid()}-noboot/backend.sock"


def test_finding_creates_nothing(short_tmp: Path) -> None:
    found = find({"JUPYTER_SALUS_RUN_DIR": str(short_tmp)})
    assert not os.path.exists(os.path.dirname(found.path))


def test_the_sockets_lie_beside_one_another() -> None:
    assert Address("/tmp/a/backend.sock", "own").admin_path == "/tmp/a/backend.adm"
    assert Address("/tmp/a/plain", "configured").admin_path == "/tmp/a/plain.adm"
    assert Address("/tmp/a/backend.sock", "own").lock_path == "/tmp/a/backend.lck"


def test_107_bytes_fit_and_108_are_too_long() -> None:
    fits = "/tmp/" + "x" * (107 - 10) + ".sock"
    assert find({}, fits).path == fits
    with pytest.raises(BadAddress, match=r"needs 108 bytes, the limit is 107"):
        find({}, "/tmp/" + "x" * (108 - 10) + ".sock")


def test_prepare_makes_a_private_directory_once(short_tmp: Path) -> None:
    own = find({"JUPYTER_SALUS_RUN_DIR": str(short_tmp)})
    prepare(own)
    prepare(own)
    assert os.stat(os.path.dirname(own.path)).st_mode & 0o777 == 0o700
    check_reachable(own)


def test_an_own_directory_that_others_can_enter_is_refused(short_tmp: Path) -> None:
    own = find({"JUPYTER_SALUS_RUN_DIR": str(short_tmp)})
    os.mkdir(os.path.dirname(own.path))
    os.chmod(os.path.dirname(own.path), 0o755)
    for checked in (prepare, check_reachable):
        with pytest.raises(BadAddress, match="has mode 0755, 0700 is needed"):
            checked(own)


def test_an_own_directory_that_is_a_link_is_refused(short_tmp: Path) -> None:
    own = find({"JUPYTER_SALUS_RUN_DIR": str(short_tmp)})
    (short_tmp / "elsewhere").mkdir(mode=0o700)
    os.symlink(short_tmp / "elsewhere", os.path.dirname(own.path))
    with pytest.raises(BadAddress, match="is a symbolic link"):
        check_reachable(own)


def test_an_own_directory_that_is_a_file_is_refused(short_tmp: Path) -> None:
    own = find({"JUPYTER_SALUS_RUN_DIR": str(short_tmp)})
    Path(os.path.dirname(own.path)).touch()
    with pytest.raises(BadAddress, match="isn't a directory"):
        prepare(own)


def test_an_own_directory_of_somebody_else_is_refused(short_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = find({"JUPYTER_SALUS_RUN_DIR": str(short_tmp)})
    prepare(own)
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    with pytest.raises(BadAddress, match=r"belongs to uid \d+, this is uid 12345"):
        check_reachable(own)


def test_an_own_directory_that_can_not_be_made_is_told(short_tmp: Path) -> None:
    with pytest.raises(BadAddress, match="its directory can't be made"):
        prepare(Address(str(short_tmp / "missing" / "deep" / "backend.sock"), "own"))


def test_a_client_may_try_an_address_whose_directory_is_missing(short_tmp: Path) -> None:
    check_reachable(Address(str(short_tmp / "missing" / "backend.sock"), "own"))


def test_a_missing_directory_is_refused(short_tmp: Path) -> None:
    with pytest.raises(BadAddress, match="No such file"):
        check(str(short_tmp / "missing" / "a.sock"))


def test_a_directory_that_is_a_file_is_refused(short_tmp: Path) -> None:
    (short_tmp / "file").touch()
    with pytest.raises(BadAddress, match="isn't a directory"):
        check(str(short_tmp / "file" / "a.sock"))


def test_a_path_that_is_no_socket_is_refused(short_tmp: Path) -> None:
    (short_tmp / "a.sock").write_text("precious")
    with pytest.raises(BadAddress, match="isn't a socket"):
        check(str(short_tmp / "a.sock"))
    assert (short_tmp / "a.sock").read_text() == "precious"


def test_a_path_that_is_a_link_is_refused(short_tmp: Path) -> None:
    os.symlink(short_tmp / "target", short_tmp / "a.sock")
    with pytest.raises(BadAddress, match="symbolic link"):
        check(str(short_tmp / "a.sock"))


def test_a_socket_of_ours_may_be_there(short_tmp: Path) -> None:
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(short_tmp / "a.sock"))
    check(str(short_tmp / "a.sock"))


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
def test_what_belongs_to_somebody_else_is_refused(short_tmp: Path) -> None:
    with socket.socket(socket.AF_UNIX) as theirs:
        theirs.bind(str(short_tmp / "a.sock"))
    os.chown(short_tmp / "a.sock", 12345, -1)
    with pytest.raises(BadAddress, match="the socket there belongs to uid 12345"):
        check(str(short_tmp / "a.sock"))
    os.chown(short_tmp, 12345, -1)
    with pytest.raises(BadAddress, match="its directory belongs to uid 12345"):
        check(str(short_tmp / "a.sock"))


def test_a_directory_in_which_anybody_may_replace_the_socket_is_refused(short_tmp: Path) -> None:
    (short_tmp / "open").mkdir()
    os.chmod(short_tmp / "open", 0o777)
    with pytest.raises(BadAddress, match="others may write in"):
        check(str(short_tmp / "open" / "a.sock"))
    os.chmod(short_tmp / "open", 0o1777)
    check(str(short_tmp / "open" / "a.sock"))


def test_a_place_where_anybody_may_put_another_own_directory_is_refused(short_tmp: Path) -> None:
    own = find({"JUPYTER_SALUS_RUN_DIR": str(short_tmp)})
    prepare(own)
    os.chmod(short_tmp, 0o777)
    for checked in (prepare, check_reachable):
        with pytest.raises(BadAddress, match=r"others may write in .* and put a directory of theirs in its place"):
            checked(own)
    os.chmod(short_tmp, 0o1777)
    check_reachable(own)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can own the system's directory")
def test_a_systems_directory_that_others_may_write_is_refused(short_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (short_tmp / "system").mkdir()
    monkeypatch.setattr(address, "SYSTEM_DIRECTORY", str(short_tmp / "system"))
    found = find({})
    assert found.kind == "system"
    check_reachable(found)
    os.chmod(short_tmp / "system", 0o1777)
    with pytest.raises(BadAddress, match="others than root may write"):
        check_reachable(found)


def test_who_finds_no_backend_of_his_own_reads_that_a_server_starts_one(
    short_tmp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUPYTER_SALUS_RUN_DIR", str(short_tmp))
    assert "a server with jupyter_salus.Manager" in gone(find(os.environ).path, "it isn't there").message
    other = str(short_tmp / "other.sock")
    assert f"`jupyter salus backend --socket {other}` starts one" in gone(other, "it isn't there").message
    monkeypatch.setenv("JUPYTER_SALUS_SOCKET", "/tmp/" + "x" * 200)
    assert "starts one" in gone(other, "it isn't there").message


def test_an_unwritable_directory_is_refused(short_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(BadAddress, match="isn't writable by uid"):
        check(str(short_tmp / "a.sock"))


def test_what_can_not_be_looked_at_is_told(short_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: object) -> os.stat_result:
        raise PermissionError(13, "Permission denied")

    own = find({"JUPYTER_SALUS_RUN_DIR": str(short_tmp)})
    prepare(own)
    monkeypatch.setattr(os, "lstat", refuse)
    with pytest.raises(BadAddress, match="Permission denied"):
        check(str(short_tmp / "a.sock"))
    with pytest.raises(BadAddress, match="Permission denied"):
        prepare(own)


def test_the_state_directory_is_chosen_by_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    assert state_directory({}) == "/home/ada/.local/state/jupyter-salus"
    assert state_directory({"XDG_STATE_HOME": "/s"}) == "/s/jupyter-salus"
    assert state_directory({"XDG_STATE_HOME": "/s", "JUPYTER_SALUS_STATE_DIR": "/t"}) == "/t"
