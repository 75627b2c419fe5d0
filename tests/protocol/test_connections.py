"""Both ends that call: the blocking client and the asyncio peer, against a scripted backend."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_salus import errors
from jupyter_salus.errors import BackendGone, BadAddress, BadFrame, NotPossible, ProtocolMismatch, SalusError
from jupyter_salus.protocol.address import Address
from jupyter_salus.protocol.client import Client
from jupyter_salus.protocol.framing import FrameReader, encode
from jupyter_salus.protocol.launch import answering, ensure_backend
from jupyter_salus.protocol.messages import Ask, Failed, StateChanged
from jupyter_salus.protocol.peer import Peer
from jupyter_salus.protocol.refusal import error_of, refusal

WELCOME = {"kind": "welcome", "protocol": 1, "version": "9.9.9", "pid": 42}
Script = Callable[[dict[str, Any]], list[Any]]


class Scripted:
    """A backend that answers each message with what its script returns: objects, bytes, or None to hang up."""

    def __init__(self, path: str, script: Script) -> None:
        self.heard: list[dict[str, Any]] = []
        self._script = script
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(path)
        self._listening.listen()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            with connection:
                self._converse(connection)

    def _converse(self, connection: socket.socket) -> None:
        reader = FrameReader()
        while data := connection.recv(65536):
            for wire in reader.feed(data):
                self.heard.append(wire)
                for answer in self._script(wire):
                    if answer is None:
                        return
                    connection.sendall(answer if isinstance(answer, bytes) else encode(answer))

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join()


@pytest.fixture
def path(short_tmp: Path) -> str:
    return str(short_tmp / "b.sock")


@pytest.fixture
def scripted(path: str) -> Iterator[Callable[[Script], Scripted]]:
    started: list[Scripted] = []

    def start(script: Script) -> Scripted:
        started.append(Scripted(path, script))
        return started[-1]

    yield start
    for one in started:
        one.close()


def polite(wire: dict[str, Any]) -> list[Any]:
    if wire["kind"] == "hello":
        return [WELCOME]
    if wire["kind"] == "subscribe":
        changed = {"kind": "state_changed", "revision": 3, "previous_revision": 0, "as_of": 1.5}
        return [{"kind": "done", "request": wire["request"]}, changed, {"kind": "from_the_future"}, changed]
    if wire.get("what") == "gone":
        return [None]
    if wire.get("what") == "mute":
        return []
    if wire["kind"] == "act":
        return [{"kind": "failed", "request": wire["request"], "code": "not_possible", "message": "cannot"}]
    stale = {"kind": "answer", "request": wire["request"] + 100, "body": {"stale": True}}
    return [stale, {"kind": "news"}, {"kind": "answer", "request": wire["request"], "body": {"what": wire["what"]}}]


def test_the_client_says_hello_asks_and_is_answered(path: str, scripted: Callable[[Script], Scripted]) -> None:
    backend = scripted(polite)
    with Client(path, role="server") as client:
        assert client.welcome.pid == 42
        assert client.ask("history", since=3) == {"what": "history"}
        assert backend.heard[0]["role"] == "server"
        assert backend.heard[1] == {"kind": "ask", "request": 1, "what": "history", "since": 3}
        with pytest.raises(NotPossible):
            client.act("evict", "s1")


def test_the_client_yields_changes_and_skips_what_it_does_not_know(
    path: str, scripted: Callable[[Script], Scripted]
) -> None:
    scripted(polite)
    with Client(path) as client:
        changes = client.changes()
        assert [next(changes).revision, next(changes).revision] == [3, 3]


def test_the_client_tells_when_the_backend_goes_or_is_silent(path: str, scripted: Callable[[Script], Scripted]) -> None:
    scripted(polite)
    with Client(path) as client, pytest.raises(BackendGone, match="it ended the connection"):
        client.ask("gone")
    with Client(path, timeout=0.2) as client, pytest.raises(BackendGone, match=r"no answer within 0\.2 s"):
        client.ask("mute")


def test_the_client_tells_that_its_own_connection_is_closed(path: str, scripted: Callable[[Script], Scripted]) -> None:
    scripted(polite)
    client = Client(path)
    client.close()
    client.close()
    with pytest.raises(BackendGone):
        client.ask("state")


@pytest.mark.parametrize("first", [BackendGone, BadAddress])
async def test_nobody_there_and_impossible_paths_are_told(path: str, first: type[SalusError]) -> None:
    wanted = path if first is BackendGone else "/tmp/" + "x" * 200
    with pytest.raises(first):
        Client(wanted)
    with pytest.raises(first):
        await Peer.connect(wanted)


async def test_a_refused_hello_is_the_backends_error(path: str, scripted: Callable[[Script], Scripted]) -> None:
    scripted(
        lambda wire: [{"kind": "failed", "code": "protocol_mismatch", "message": "cannot speak", "detail": {"a": 1}}]
    )
    with pytest.raises(ProtocolMismatch, match="cannot speak") as told:
        Client(path)
    assert told.value.detail == {"a": 1}
    with pytest.raises(ProtocolMismatch, match="cannot speak"):
        await Peer.connect(path)


def test_a_wrong_first_answer_is_told(path: str, scripted: Callable[[Script], Scripted]) -> None:
    scripted(lambda wire: [{"kind": "done", "request": 1}])
    with pytest.raises(BadFrame, match="answered the hello with 'done'"):
        Client(path)


async def test_the_peer_says_hello_asks_and_is_answered(path: str, scripted: Callable[[Script], Scripted]) -> None:
    backend = scripted(polite)
    peer = await Peer.connect(path, name="x")
    assert peer.welcome is not None
    assert backend.heard[0]["name"] == "x"
    answers = list(await asyncio.gather(peer.request(Ask, what="state"), peer.request(Ask, what="history")))
    assert answers == [{"what": "state"}, {"what": "history"}]
    await peer.close()
    await peer.close()
    assert peer.closed.result() == "it was closed here"
    with pytest.raises(BackendGone):
        await peer.request(Ask, what="state")


async def test_the_peer_hands_changes_to_its_subscriber(path: str, scripted: Callable[[Script], Scripted]) -> None:
    scripted(polite)
    peer = await Peer.connect(path)
    changes: asyncio.Queue[StateChanged] = asyncio.Queue()
    await peer.subscribe(changes.put_nowait)
    assert (await changes.get()).previous_revision == 0
    assert (await changes.get()).revision == 3
    await peer.close()


async def test_the_peers_requests_end_with_the_connection(path: str, scripted: Callable[[Script], Scripted]) -> None:
    scripted(polite)
    peer = await Peer.connect(path)
    with pytest.raises(BackendGone, match="it ended the connection"):
        await asyncio.gather(peer.request(Ask, what="mute"), peer.request(Ask, what="gone"))
    assert await peer.closed == "it ended the connection"
    await peer.close()


async def test_a_silent_backend_is_gone_for_the_peer(path: str, scripted: Callable[[Script], Scripted]) -> None:
    scripted(polite)
    peer = await Peer.connect(path, timeout=0.2)
    with pytest.raises(BackendGone, match="no answer within"):
        await peer.request(Ask, what="mute")
    await peer.close()


async def test_a_backend_that_never_welcomes_is_gone(path: str, scripted: Callable[[Script], Scripted]) -> None:
    scripted(lambda wire: [])
    with pytest.raises(BackendGone, match="no answer within"):
        await Peer.connect(path, timeout=0.2)
    with pytest.raises(BackendGone, match="no answer within"):
        Client(path, timeout=0.2)


@pytest.mark.parametrize("nonsense", [b"\xff\xff\xff\xff", encode({"kind": "interrupt"})])
async def test_nonsense_from_the_backend_ends_the_peers_connection(
    path: str, scripted: Callable[[Script], Scripted], nonsense: bytes
) -> None:
    scripted(lambda wire: [WELCOME] if wire["kind"] == "hello" else [nonsense])
    peer = await Peer.connect(path)
    with pytest.raises(BackendGone):
        await peer.request(Ask, what="state")
    assert (await peer.closed).startswith("cannot")
    await peer.close()


def test_every_error_class_survives_the_wire() -> None:
    def tree(cls: type[SalusError]) -> Iterator[type[SalusError]]:
        yield cls
        for below in cls.__subclasses__():
            yield from tree(below)

    for cls in tree(errors.SalusError):
        back = error_of(refusal(cls("cannot do it", {"a": 1}), request=3))
        assert type(back) is cls
        assert (back.message, back.detail, back.code) == ("cannot do it", {"a": 1}, cls.code)


def test_an_error_of_a_newer_backend_keeps_its_code() -> None:
    error = error_of(Failed("from_the_future", "cannot"))
    assert type(error) is SalusError
    assert error.code == "from_the_future"


def test_a_running_backend_is_taken_as_it_is(path: str, scripted: Callable[[Script], Scripted]) -> None:
    scripted(polite)
    assert ensure_backend(Address(path, "configured")).version == "9.9.9"


def test_an_address_that_is_not_ours_is_never_served_by_us(path: str) -> None:
    assert answering(Address(path, "system")) is None
    with pytest.raises(BackendGone, match="a system address is not ours to serve"):
        ensure_backend(Address(path, "system"))
