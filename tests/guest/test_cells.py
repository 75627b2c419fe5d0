"""Cells as the backend sees them, and what a governed kernel leaves as it was."""

from __future__ import annotations

from collections.abc import Callable

from jupyter_salus.protocol.messages import CellFinished, CellStarted, Hello
from tests.guest.conftest import Governed
from tests.guest.kernels import Kernel
from tests.guest.scripted import ScriptedBackend


def test_the_hello_says_who_the_kernel_is(backend: ScriptedBackend, start_kernel: Callable[..., Kernel]) -> None:
    kernel = start_kernel(backend.path, session="abc")
    hello = backend.expect(Hello)
    assert (hello.role, hello.session, hello.token, hello.incarnation) == ("guest", "abc", "token-of-abc", 1)
    assert (hello.pid, hello.name, hello.path) == (kernel.pid, "abc.ipynb", "work/abc.ipynb")
    assert hello.persistent_bytes is not None and hello.persistent_bytes > 1_000_000


def test_token_and_boot_folder_are_gone_from_what_children_inherit(governed: Governed) -> None:
    ran = governed.kernel.run(
        "print([name for name in ('PYTHONPATH', 'JUPYTER_SALUS_TOKEN') if name in os.environ],"
        " [one for one in sys.path if 'boot' in one])"
    )
    assert ran.text == "[] []\n"


def test_a_cell_begins_and_ends_and_never_asks_if_it_computes_nothing(governed: Governed) -> None:
    governed.kernel.run("1 + 1", metadata={"cellId": "c7"})
    governed.backend.expect(CellFinished)
    assert governed.backend.kinds() == ["cell_started", "cell_finished"]
    assert governed.backend.all(CellStarted)[0].cell == governed.backend.all(CellFinished)[0].cell


def test_a_loop_that_sleeps_never_asks(governed: Governed) -> None:
    governed.kernel.run("for i in range(40):\n    time.sleep(0.005)")
    assert "turn_wanted" not in governed.backend.kinds()


def test_an_import_never_asks_even_of_a_module_that_loops(governed: Governed) -> None:
    module = governed.folder / "looping.py"
    module.write_text("import time\nend = time.thread_time() + 0.4\nwhile time.thread_time() < end:\n    pass\n")
    ran = governed.kernel.run(f"sys.path.insert(0, {str(governed.folder)!r})\nimport looping\nprint('done')")
    assert ran.text == "done\n"
    assert "turn_wanted" not in governed.backend.kinds()


def test_a_failing_cell_ends_and_shows_no_frame_of_the_guest(governed: Governed) -> None:
    ran = governed.kernel.run("1 / 0")
    assert ran.status == "error" and "ZeroDivisionError" in ran.traceback and "guest" not in ran.traceback
    governed.backend.expect(CellFinished)


def test_a_silent_execution_is_no_cell(governed: Governed) -> None:
    governed.kernel.run("2 + 2", silent=True)
    governed.kernel.run("3 + 3")
    governed.backend.expect(CellFinished)
    assert governed.backend.kinds() == ["cell_started", "cell_finished"]


def test_the_kernels_do_execute_keeps_its_signature(governed: Governed) -> None:
    ran = governed.kernel.run(
        "import inspect\n"
        "kernel = get_ipython().kernel\n"
        "print(inspect.signature(kernel.do_execute) == inspect.signature(type(kernel).do_execute.__get__(kernel)))"
    )
    assert ran.text == "True\n"


def test_the_public_package_finds_the_guest(governed: Governed) -> None:
    ran = governed.kernel.run(
        "import jupyter_salus\njupyter_salus.boundary()\n"
        "print(list(jupyter_salus.iterations([1, 2])), len(jupyter_salus.iterations([1])))"
    )
    assert ran.text == "[1, 2] 1\n"


def test_a_forked_child_keeps_no_copy_of_the_connection(governed: Governed) -> None:
    ran = governed.kernel.run(
        "def links():\n"
        "    here = '/proc/self/fd/'\n"
        "    return [os.readlink(here + one) for one in os.listdir(here) if os.path.islink(here + one)]\n"
        "ours = sys.modules['_jupyter_salus.guest'].running().link._socket\n"
        "name = os.readlink(f'/proc/self/fd/{ours.fileno()}')\n"
        "read, write = os.pipe()\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    found = links()\n"
        "    total = 0\n"
        "    for i in range(300000): total += i\n"
        "    os.write(write, str((name in found, total)).encode())\n"
        "    os._exit(0)\n"
        "os.waitpid(pid, 0)\n"
        "print(os.read(read, 100).decode())"
    )
    assert ran.text == "(False, 44999850000)\n"


def test_a_kernel_without_any_backend_is_a_plain_one(start_kernel: Callable[..., Kernel], short_tmp) -> None:
    kernel = start_kernel(short_tmp / "nobody.sock")
    assert kernel.run("x = 0\nfor i in range(2_000_000): x += i\nprint(x)").text == "1999999000000\n"


def test_a_refused_hello_leaves_a_plain_kernel(backend: ScriptedBackend, start_kernel: Callable[..., Kernel]) -> None:
    backend.refuse = "cannot take this kernel"
    kernel = start_kernel(backend.path)
    backend.expect(Hello)
    assert kernel.run("x = 0\nfor i in range(2_000_000): x += i\nprint(x)").text == "1999999000000\n"
    assert "cannot take this kernel" in kernel.run("%salus status").text
    assert set(backend.kinds()) == {"hello"}


def test_the_guests_thread_carries_the_marks_that_keep_debuggers_off(governed: Governed) -> None:
    ran = governed.kernel.run(
        "link = next(one for one in threading.enumerate() if one.name == 'jupyter-salus-link')\n"
        "print(link.daemon, link.pydev_do_not_trace, link.is_pydev_daemon_thread)"
    )
    assert ran.text == "True True True\n"
