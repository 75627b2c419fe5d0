"""What goes into a kernel's command line and environment, and what doesn't."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jupyter_salus.manager.injection import (
    BOOT_DIRECTORY,
    EXTENSION_ARGUMENT,
    door_of,
    injected,
    place,
    prepend_boot_directory,
    variables,
)


@pytest.mark.parametrize(
    "command",
    [
        ["python3", "-m", "ipykernel_launcher", "-f", "c.json"],
        ["/env/bin/python", "-Xfrozen_modules=off", "-m", "ipykernel_launcher", "-f", "c.json"],
        ["python3", "-X", "dev", "-um", "ipykernel", "-f", "c.json"],
        ["python3", "/env/lib/ipykernel_launcher.py", "-f", "c.json"],
        ["conda", "run", "-p", "/env", "python", "-m", "ipykernel_launcher", "-f", "c.json"],
    ],
)
def test_a_command_line_that_starts_ipykernel_takes_the_extension(command: list[str]):
    door = door_of(command, "python")
    assert door.kind == "extension" and door.reason is None
    assert injected(command) == [*command, EXTENSION_ARGUMENT]


@pytest.mark.parametrize("options", [["-I"], ["-E"], ["-sIu"], ["-X", "dev", "-E"]])
def test_a_python_that_ignores_its_environment_is_offered_the_guest(options: list[str]):
    door = door_of(["python3", *options, "-m", "ipykernel_launcher", "-f", "c.json"], "python")
    assert door.kind == "offer" and "-I or -E" in str(door.reason)


def test_a_python_kernel_behind_a_wrapper_is_offered_the_guest():
    assert door_of(["/opt/run-kernel.sh", "c.json"], "python").kind == "offer"


@pytest.mark.parametrize("language", ["R", "julia", "bash", ""])
def test_a_kernel_of_another_language_is_closed_and_says_which(language: str):
    door = door_of(["ir", "c.json"], language)
    assert door.kind == "closed" and (language or "unnamed") in str(door.reason)


def test_a_kernel_that_is_started_elsewhere_is_closed():
    assert door_of(["python3", "-m", "ipykernel_launcher"], "python", launched_here=False).kind == "closed"


def test_injecting_twice_is_injecting_once():
    command = injected(injected(["python3", "-m", "ipykernel_launcher"]))
    assert command.count(EXTENSION_ARGUMENT) == 1
    environment = {"PYTHONPATH": os.pathsep.join(["/a", "/b"])}
    prepend_boot_directory(environment)
    prepend_boot_directory(environment)
    assert environment["PYTHONPATH"] == os.pathsep.join([BOOT_DIRECTORY, "/a", "/b"])


def test_an_empty_pythonpath_gets_no_empty_part():
    environment = {"PYTHONPATH": ""}
    prepend_boot_directory(environment)
    assert environment["PYTHONPATH"] == BOOT_DIRECTORY


def test_the_boot_directory_holds_the_boot_module_and_no_package_of_ours():
    found = {path.name for path in Path(BOOT_DIRECTORY).iterdir() if path.name != "__pycache__"}
    assert found == {"_jupyter_salus_boot.py"}


def test_among_several_gpus_a_kernel_sees_the_one_it_was_put_on_unless_its_user_chose():
    several = {"device": "gpu:1", "uuid": "GPU-b", "among": 2}
    for environment, device, seen in (
        ({}, several, "GPU-b"),
        ({"CUDA_VISIBLE_DEVICES": "0"}, several, "0"),
        ({"CUDA_VISIBLE_DEVICES": ""}, several, ""),
        ({}, {**several, "among": 1}, None),
        ({}, {}, None),
    ):
        place(environment, device)
        assert environment.get("CUDA_VISIBLE_DEVICES") == seen


def test_a_kernel_without_a_notebook_gets_no_path():
    found = variables("/s", "id", "token", 2, "id", "python3 1234", None)
    assert "JUPYTER_SALUS_PATH" not in found
    assert found["JUPYTER_SALUS_INCARNATION"] == "2"
