"""A front end that does the corpus's steps with a kernel and keeps all that the kernel says, by step and channel."""

from __future__ import annotations

import ast
import asyncio
from dataclasses import dataclass, field
from typing import Any

import zmq

from tests.corpus.cells import Step
from tests.manager.running import PATIENCE_S

#: What a notebook front end says of each cell, so that the kernel knows that it has one.
_METADATA = {"cellId": "c", "deletedCells": [], "recordTiming": False}

Message = dict[str, Any]


@dataclass
class Said:
    """What came of one step."""

    step: Step
    #: Replies, on shell and control, and what was asked of the person.
    replies: list[Message] = field(default_factory=list)
    asked: list[Message] = field(default_factory=list)
    #: What was published under its requests, in order.
    published: list[Message] = field(default_factory=list)
    #: What each of its cells published, in the order of the cells: the notebook's outputs.
    cells: list[tuple[str, list[Message]]] = field(default_factory=list)


class Conversation:
    """`client` is an asyncio client of jupyter_client, ready; `version` the kernel's ipykernel, as numbers."""

    def __init__(self, client: Any, version: tuple[int, ...]) -> None:
        self._client = client
        self._version = version
        #: By request: the step, its published messages, whether it is idle, its reply.
        self._step: dict[str, Said] = {}
        self._outputs: dict[str, list[Message]] = {}
        self._replied: dict[str, Message] = {}
        self._idle: set[str] = set()
        self._input: list[str] = []
        self._more = asyncio.Event()
        self._comms: dict[str, str] = {}
        self._subshell: str | None = None
        self._stopped: Message = {}
        self._stops = 0
        self._frame = 0
        self._open: tuple[Said, str] | None = None

    async def hold(self, steps: list[Step]) -> list[Said]:
        """Do the steps this kernel knows of, one after the other."""
        listeners = [asyncio.ensure_future(self._listen(name)) for name in ("shell", "control", "iopub", "stdin")]
        said = []
        try:
            for step in steps:
                if step.options.get("ipykernel", 0) <= self._version[0]:
                    said.append(await self._do(step))
        finally:
            for one in listeners:
                one.cancel()
            await asyncio.gather(*listeners, return_exceptions=True)
        return said

    # ---- the steps -----------------------------------------------------------------------------------------------------

    async def _do(self, step: Step) -> Said:
        said = Said(step)
        options = {name: value for name, value in step.options.items() if name != "ipykernel"}
        # One method for each kind, by its name: a kind that isn't known is an error of the corpus.
        try:
            async with asyncio.timeout(PATIENCE_S):
                await getattr(self, f"_do_{step.kind}")(said, options)
        except TimeoutError as error:
            raise AssertionError(f"{step.name} had no end within {PATIENCE_S:g} s:\n{step.code}") from error
        return said

    async def _do_execute(self, said: Said, options: Message) -> None:
        self._input = list(options.pop("input", []))
        header = {"subshell_id": self._subshell} if options.pop("subshell", False) else {}
        code = said.step.code
        await self._ended(self._execute(said, code, options, header))

    async def _do_queued(self, said: Said, options: Message) -> None:
        """Several cells at once, as Run All sends them."""
        cells = options.pop("cells")
        for request in [self._execute(said, code, options) for code in cells]:
            await self._ended(request)

    async def _do_ask(self, said: Said, options: Message) -> None:
        await self._ended(self._send(said, "shell", said.step.message, options))

    async def _do_control(self, said: Said, options: Message) -> None:
        arguments = options.get("arguments", {})
        if "threadId" in arguments:
            arguments["threadId"] = self._stopped["threadId"]
        if "frameId" in arguments:
            arguments["frameId"] = self._frame
        reply = await self._ended(self._send(said, "control", said.step.message, options))
        frames = (reply.get("body") or {}).get("stackFrames")
        if frames:
            self._frame = frames[0]["id"]

    async def _do_comm(self, said: Said, options: Message) -> None:
        """What a widget's front end sends: `model` is the variable that holds the widget."""
        name = options.pop("model")
        expression = {"id": f"{name}.model_id"}
        reply = await self._aside(expression)
        comm_id = ast.literal_eval(reply["user_expressions"]["id"]["data"]["text/plain"])
        self._send(said, "shell", "comm_msg", {"comm_id": comm_id, "data": options})
        await self._aside({})

    async def _do_comm_open(self, said: Said, options: Message) -> None:
        content = {"comm_id": "c0" * 16, **options}
        self._send(said, "shell", "comm_open", content)
        await self._aside({})

    async def _do_subshell(self, said: Said, options: Message) -> None:
        reply = await self._ended(self._send(said, "control", "create_subshell_request", {}))
        self._subshell = reply["subshell_id"]

    async def _do_endsubshell(self, said: Said, options: Message) -> None:
        await self._ended(self._send(said, "control", "delete_subshell_request", {"subshell_id": self._subshell}))

    async def _do_dumped(self, said: Said, options: Message) -> None:
        """Tell the kernel of a cell, and set a breakpoint in it."""
        dump = {"type": "request", "seq": 4, "command": "dumpCell", "arguments": {"code": options["code"]}}
        reply = await self._ended(self._send(said, "control", "debug_request", dump))
        arguments = {
            "breakpoints": [{"line": options["line"]}],
            "source": {"path": reply["body"]["sourcePath"]},
            "sourceModified": False,
        }
        request = {"type": "request", "seq": 5, "command": "setBreakpoints", "arguments": arguments}
        await self._ended(self._send(said, "control", "debug_request", request))

    async def _do_stops(self, said: Said, options: Message) -> None:
        """A cell that stops at a breakpoint; `goes` lets it end."""
        self._open = said, self._execute(said, said.step.code, options)
        await self._until(lambda: self._stops == 1)

    async def _do_goes(self, said: Said, options: Message) -> None:
        assert self._open is not None
        _, request = self._open
        for time in range(1, options["times"] + 1):
            body = {
                "type": "request",
                "seq": 10 + time,
                "command": options["command"],
                "arguments": {"threadId": self._stopped["threadId"]},
            }
            await self._ended(self._send(said, "control", "debug_request", body))
            if time < options["times"]:
                await self._until(lambda time=time: self._stops == time + 1)
        await self._ended(request)

    # ---- sending and hearing -------------------------------------------------------------------------------------------

    def _execute(self, said: Said, code: str, options: Message, header: Message | None = None) -> str:
        content = {
            "code": code,
            "silent": False,
            "store_history": True,
            "user_expressions": {},
            "allow_stdin": True,
            "stop_on_error": True,
            **options,
        }
        request = self._send(said, "shell", "execute_request", content, header)
        if not content["silent"]:
            said.cells.append((code, self._outputs[request]))
        return request

    def _send(self, said: Said, channel: str, kind: str, content: Message, header: Message | None = None) -> str:
        client = self._client
        message = client.session.msg(kind, content, metadata=dict(_METADATA))
        message["header"].update(header or {})
        request = str(message["header"]["msg_id"])
        self._step[request] = said
        self._outputs[request] = []
        getattr(client, f"{channel}_channel").send(message)
        return request

    async def _ended(self, request: str) -> Message:
        """The content of the reply, once the kernel is idle again."""
        await self._until(lambda: request in self._replied and request in self._idle)
        return self._replied[request]

    async def _aside(self, expressions: Message) -> Message:
        """Asked by the tests themselves, and kept out of what is compared. Also the end of requests without a reply:
        ipykernel 7 tells of no idle for them, but does nothing else before they have ended."""
        said = Said(Step("aside", "execute", "", {}, ""))
        content = {"silent": True, "store_history": False, "user_expressions": expressions}
        return await self._ended(self._execute(said, "", content))

    async def _until(self, condition: Any) -> None:
        while not condition():
            self._more.clear()
            await self._more.wait()

    async def _listen(self, name: str) -> None:
        channel = getattr(self._client, f"{name}_channel")
        while True:
            if not await channel.socket.poll(1000, zmq.POLLIN):
                continue
            message = await channel.get_msg()
            self._hear(name, message)
            self._more.set()

    def _hear(self, channel: str, message: Message) -> None:
        request = message["parent_header"].get("msg_id")
        said = self._step.get(request)
        if said is None:
            return  # of the time before the first step
        content = message["content"]
        kept = {
            "msg_type": message["msg_type"],
            "content": content,
            "metadata": message["metadata"],
            "buffers": [bytes(one).hex() for one in message["buffers"]],
        }
        if channel in ("shell", "control"):
            self._replied[request] = content
            said.replies.append(kept)
        elif channel == "stdin":
            said.asked.append(kept)
            self._client.input(self._input.pop(0))
        else:
            said.published.append(kept)
            self._outputs[request].append(kept)
            if kept["msg_type"] == "status" and content["execution_state"] == "idle":
                self._idle.add(request)
            elif kept["msg_type"] == "debug_event" and content.get("event") == "stopped":
                self._stopped = content["body"]
                self._stops += 1
