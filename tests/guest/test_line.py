"""The line in the notebook while a cell waits: shown late, only where it may, and gone before anything else."""

from __future__ import annotations

import re
import time
from typing import Any

from jupyter_salus.guest.line import place, worded
from jupyter_salus.protocol.messages import TurnWanted, WaitExplained
from tests.guest.conftest import Governed
from tests.guest.kernels import NOTEBOOK_METADATA, Ran


def kinds(ran: Ran) -> list[str]:
    """What a cell published, in its order."""
    return [one["msg_type"] for one in ran.outputs]


def wait_for_line(governed: Governed, request: str) -> list[dict[str, Any]]:
    """What was published for the request up to the line."""
    seen: list[dict[str, Any]] = []
    client = governed.kernel.client
    while not seen or seen[-1]["msg_type"] != "stream":
        message = client.get_iopub_msg(timeout=60)
        if message["parent_header"].get("msg_id") == request:
            seen.append(message)
    return seen


def test_the_line_says_why_and_is_cleared_before_anything_else(governed: Governed) -> None:
    flag = governed.flag()
    request = governed.kernel.submit(
        f"while not os.path.exists({str(flag)!r}): x += 1\nprint('first output')", metadata=NOTEBOOK_METADATA
    )
    ticket = governed.backend.expect(TurnWanted).ticket
    governed.backend.explain(ticket, "next in line, behind digits.ipynb (its turn since 3 s)", position=1)
    line = wait_for_line(governed, request)[-1]
    assert line["content"]["text"] == "Salus: next in line, behind digits.ipynb (its turn since 3 s)\n"
    governed.backend.grant(ticket)
    ran = governed.finish(request, flag)
    assert kinds(ran) == ["clear_output", "stream"]
    assert ran.outputs[0]["content"] == {"wait": False}
    assert ran.text == "first output\n"


def test_control_characters_of_a_name_dont_reach_the_notebook(governed: Governed) -> None:
    flag = governed.flag()
    request = governed.kernel.submit(f"while not os.path.exists({str(flag)!r}): x += 1", metadata=NOTEBOOK_METADATA)
    ticket = governed.backend.expect(TurnWanted).ticket
    governed.backend.explain(ticket, "behind \x1b[31mred\r\n\u202eevil.ipynb")
    text = wait_for_line(governed, request)[-1]["content"]["text"]
    assert text == "Salus: behind \ufffd[31mred\ufffd\ufffd\ufffdevil.ipynb\n"
    governed.backend.grant(ticket)
    governed.finish(request, flag)


def test_the_line_adds_place_and_time_to_the_reason() -> None:
    why = WaitExplained(ticket=1, code="turn", text="waits for a.ipynb, which has the device", position=2, since=1.0)
    assert re.fullmatch(
        r"Salus: 2nd in line, waits for a\.ipynb, which has the device \(since \d\d:\d\d:01\)", worded(why)
    )
    assert worded(None) == "Salus: waiting for a turn"
    assert [place(one) for one in (1, 2, 3, 4, 21)] == [
        "next in line",
        "2nd in line",
        "3rd in line",
        "number 4 in line",
        "number 21 in line",
    ]


def no_line(governed: Governed, code: str, metadata: dict[str, Any]) -> Ran:
    """Run a cell that waits for about two seconds, as it tells the time itself."""
    flag = governed.flag()
    request = governed.kernel.submit(code.replace("FLAG", repr(str(flag))), metadata=metadata)
    ticket = governed.backend.expect(TurnWanted).ticket
    # Long enough for a line to be there if it came; a late look makes the test weaker, never wrong.
    governed.kernel.client.control_channel.send(governed.kernel.client.session.msg("kernel_info_request"))
    governed.kernel.client.get_control_msg(timeout=60)
    time.sleep(1.6)
    governed.backend.grant(ticket)
    return governed.finish(request, flag)


def test_no_line_for_clients_that_know_no_cells(governed: Governed) -> None:
    assert kinds(no_line(governed, "while not os.path.exists(FLAG): x += 1", {})) == []


def test_no_line_once_the_cell_has_published_something(governed: Governed) -> None:
    ran = no_line(governed, "print('mine', flush=True)\nwhile not os.path.exists(FLAG): x += 1", NOTEBOOK_METADATA)
    assert kinds(ran) == ["stream"] and ran.text == "mine\n"


def test_no_line_inside_an_output_widget(governed: Governed) -> None:
    ran = no_line(
        governed,
        "import ipywidgets\nout = ipywidgets.Output()\nwith out:\n    while not os.path.exists(FLAG): x += 1",
        NOTEBOOK_METADATA,
    )
    assert "stream" not in kinds(ran) and "clear_output" not in kinds(ran)


def test_the_line_stands_under_captured_output_and_isnt_captured(governed: Governed) -> None:
    flag = governed.flag()
    request = governed.kernel.submit(
        "from IPython.utils.capture import capture_output\n"
        f"with capture_output() as captured:\n    while not os.path.exists({str(flag)!r}): x += 1\n    print('inside')\n"
        "print(repr(captured.stdout))",
        metadata=NOTEBOOK_METADATA,
    )
    ticket = governed.backend.expect(TurnWanted).ticket
    wait_for_line(governed, request)
    governed.backend.grant(ticket)
    assert governed.finish(request, flag).text == "'inside\\n'\n"


def test_status_says_what_the_kernel_has(governed: Governed) -> None:
    governed.backend.generous = True
    text = governed.kernel.run("%salus status").text
    assert text.startswith("s1.ipynb: ") and str(governed.backend.path) in text
    assert "usage" in governed.kernel.run("%salus nonsense").text


def test_free_lets_go_of_what_an_error_held(governed: Governed) -> None:
    governed.backend.generous = True
    governed.kernel.run("import weakref\nclass Big: pass")
    governed.kernel.run("def fail():\n    global ref\n    big = Big(); ref = weakref.ref(big)\n    1/0")
    assert governed.kernel.run("fail()").status == "error"
    assert governed.kernel.run("print(ref() is None)").text == "False\n"
    assert "Released" in governed.kernel.run("%salus free").text
    assert governed.kernel.run("print(ref() is None)").text == "True\n"
