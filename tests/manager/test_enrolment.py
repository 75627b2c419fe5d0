"""What a backend hears of a kernel, whatever happened to the kernel or the backend in between."""

from __future__ import annotations

import os
import uuid
from collections.abc import AsyncIterator

import pytest

from jupyter_salus.manager.enrolment import Enrolment
from jupyter_salus.manager.names import Notebook
from jupyter_salus.protocol.messages import Ended
from jupyter_salus.protocol.peer import Peer
from tests.manager.running import Backend


@pytest.fixture
async def peer(backend: Backend) -> AsyncIterator[Peer]:
    made = await Peer.connect(backend.socket, "server")
    yield made
    await made.close()


@pytest.fixture
async def enrolment(peer: Peer) -> AsyncIterator[Enrolment]:
    """A kernel that the backend shows as not managed, since this process is its kernel."""
    made = Enrolment(str(uuid.uuid4()), Notebook("one.ipynb", "one.ipynb"))
    made.begin()
    made.pid, made.unmanaged = os.getpid(), "it is a test"
    await made.bring(peer, "this")
    yield made
    made.ended = True
    await made.bring(peer, "this")


async def test_only_what_changed_is_said_again(backend: Backend, peer: Peer, enrolment: Enrolment):
    row = backend.session(enrolment.session)
    assert row is not None and (row["name"], row["incarnation"]) == ("one.ipynb", 1)
    enrolment.notebook = Notebook("two.ipynb", "b/two.ipynb")
    await enrolment.bring(peer, "this")
    row = backend.session(enrolment.session)
    assert row is not None and (row["name"], row["path"], row["incarnation"]) == ("two.ipynb", "b/two.ipynb", 1)


async def test_a_kernel_that_ends_before_its_restart_was_told_is_ended(
    backend: Backend, peer: Peer, enrolment: Enrolment
):
    enrolment.begin()
    assert enrolment.announced
    enrolment.ended = True
    await enrolment.bring(peer, "this")
    assert backend.session(enrolment.session) is None


async def test_a_backend_that_forgot_the_session_hears_all_again(backend: Backend, peer: Peer, enrolment: Enrolment):
    await peer.request(Ended, session=enrolment.session)
    assert backend.session(enrolment.session) is None
    enrolment.notebook = Notebook("two.ipynb", "two.ipynb")
    await enrolment.bring(peer, "this")
    row = backend.session(enrolment.session)
    assert row is not None and row["name"] == "two.ipynb" and row["unmanaged_reason"] == "it is a test"


async def test_another_backend_hears_all(backend: Backend, peer: Peer, enrolment: Enrolment):
    await peer.request(Ended, session=enrolment.session)
    await enrolment.bring(peer, "another")
    assert backend.session(enrolment.session) is not None


async def test_each_launch_has_a_token_of_its_own(enrolment: Enrolment):
    before = enrolment.token
    enrolment.begin()
    assert enrolment.token != before and enrolment.incarnation == 2 and enrolment.pid is None
