"""Loops that take turns by themselves, as cells: each runs until the file FLAG is there and then prints `ended`."""

from __future__ import annotations

PREPARE = "import os, sys, time, threading, signal, asyncio\nx = 0\n"

LOOPS = {
    "while": "while not os.path.exists(FLAG):\n    x += 1\nprint('ended')",
    "for with continue": (
        "for i in iter(lambda: os.path.exists(FLAG), True):\n    if i % 2 == 0:\n        continue\n    x += 1\nprint('ended')"
    ),
    "nested, the inner ones short": (
        "while not os.path.exists(FLAG):\n    for a in range(3):\n        for b in range(3):\n            x += 1\nprint('ended')"
    ),
    "function of a cell, many calls": (
        "def step(value):\n    return value + 1\n"
        "def work():\n    count = 0\n    while not os.path.exists(FLAG):\n"
        "        for i in range(2000): count = step(count)\n"
        "work()\nprint('ended')"
    ),
    "generator": (
        "def items():\n    while not os.path.exists(FLAG):\n        yield 1\nprint('ended' if sum(items()) >= 0 else '')"
    ),
    "comprehension": ("print('ended' if len([1 for i in iter(lambda: os.path.exists(FLAG), True)]) >= 0 else '')"),
    "await in the loop": "while not os.path.exists(FLAG):\n    x += sum(range(200))\n    await asyncio.sleep(0)\nprint('ended')",
    "a coroutine's loop": (
        "async def one(value):\n    return sum(range(value))\n"
        "async def work():\n    while not os.path.exists(FLAG):\n        await one(200)\n"
        "await work()\nprint('ended')"
    ),
    "a file of the user's": (
        "open(FOLDER + '/mine.py', 'w').write("
        "'import os\\ndef work(flag):\\n    x = 0\\n    while not os.path.exists(flag):\\n        x += 1\\n')\n"
        "sys.path.insert(0, FOLDER)\nimport mine\nmine.work(FLAG)\nprint('ended')"
    ),
}


def cell(name: str, flag: object, folder: object) -> str:
    """The cell of this loop."""
    return LOOPS[name].replace("FLAG", repr(str(flag))).replace("FOLDER", repr(str(folder)))
