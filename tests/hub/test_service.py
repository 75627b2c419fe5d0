"""The service page's program: why it can't serve is one line, and exit status 1."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from jupyterhub.services.auth import HubOAuth

from jupyter_salus.hub.service import main


@pytest.fixture(autouse=True)
def as_a_hub_starts_it(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("JUPYTERHUB_API_TOKEN", "t" * 32)
    monkeypatch.setenv("JUPYTERHUB_SERVICE_PREFIX", "/services/salus/")
    yield
    HubOAuth.clear_instance()


def test_without_a_token_it_says_who_starts_it(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.delenv("JUPYTERHUB_API_TOKEN")
    assert main([]) == 1
    assert capsys.readouterr().err.startswith("jupyter_salus.hub: cannot serve without a token in JUPYTERHUB_API_TOKEN")


@pytest.mark.parametrize("argv", [["--backend=/run/b.adm"], ["--backend", "/run/b.adm"], ["--backend"]])
def test_a_backend_has_a_name_and_a_path(argv: list[str], capsys) -> None:
    assert main(argv) == 1
    assert "as a backend: NAME=PATH is needed" in capsys.readouterr().err


def test_an_address_that_is_in_use_is_named(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        monkeypatch.setenv("JUPYTERHUB_SERVICE_URL", url)
        assert main(["--backend=here=/none"]) == 1
    error = capsys.readouterr().err
    assert f"jupyter_salus.hub: cannot serve {url}: Address already in use" in error
    assert "Traceback" not in error
