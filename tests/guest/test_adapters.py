"""Frameworks' boundaries: turns pass between steps and batches, results are those of a plain kernel, nothing shows."""

from __future__ import annotations

import importlib.util

import pytest

from jupyter_salus.protocol.messages import CellFinished, Progress, TurnReleased, TurnWanted
from tests.guest.conftest import Governed
from tests.guest.kernels import Kernel


def needs(module: str) -> pytest.MarkDecorator:
    """Skip where the framework isn't installed."""
    return pytest.mark.skipif(importlib.util.find_spec(module) is None, reason=f"{module} isn't installed")


TORCH = """
import torch, hashlib
torch.manual_seed(0)
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.Adam(model.parameters())
data = torch.randn(256, 64)
def train(steps):
    for step in range(steps):
        optimizer.zero_grad()
        loss = (model(data) ** 2).mean()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            {extra}
    return hashlib.sha256(b"".join(one.detach().numpy().tobytes() for one in model.parameters())).hexdigest()
"""

KERAS = """
import keras, hashlib, numpy
keras.utils.set_random_seed(0)
model = keras.Sequential([keras.Input((32,)), keras.layers.Dense(32), keras.layers.Dense(1)])
model.compile(optimizer="adam", loss="mse")
data, target = numpy.random.rand(512, 32).astype("float32"), numpy.random.rand(512, 1).astype("float32")
history = model.fit(data, target, epochs=4, batch_size=8, verbose=0)
print(hashlib.sha256(b"".join(one.tobytes() for one in model.get_weights())).hexdigest(), history.history["loss"])
"""


@needs("torch")
def test_torch_steps_pass_turns_and_train_the_same_model(governed: Governed, plain: Kernel) -> None:
    governed.kernel.run(TORCH.replace("{extra}", "pass"))
    assert governed.kernel.run("turn_before = 1").status == "ok"
    governed.backend.forget()
    request = governed.kernel.submit("print(train(1500))")
    governed.backend.grant(governed.backend.expect(TurnWanted).ticket)
    governed.pass_a_turn(1)
    governed.pass_a_turn(2)
    ran = governed.kernel.collect(request)
    governed.backend.expect(CellFinished)
    assert sum(one.iterations for one in governed.backend.all(Progress)) > 100
    frameworks = [one.frameworks for one in governed.backend.all(Progress)][-1]
    assert frameworks is not None and "torch" in frameworks
    plain.run(TORCH.replace("{extra}", "pass"))
    assert ran.text == plain.run("print(train(1500))").text


@needs("torch")
def test_torch_compiles_a_function_whole_while_a_turn_is_wanted(governed: Governed) -> None:
    governed.backend.generous = True
    ran = governed.kernel.run(
        "import torch\n"
        "@torch.compile(fullgraph=True, backend='eager')\n"
        "def work(value):\n"
        "    for i in range(5): value = value + i\n"
        "    return value\n"
        "print(float(sum(work(torch.zeros(3))) + sum(i * 0 for i in range(300000))))"
    )
    assert ran.text == "30.0\n", ran.traceback


@needs("torch")
def test_an_error_inside_a_torch_loop_shows_no_frame_of_the_guest(governed: Governed) -> None:
    governed.backend.generous = True
    ran = governed.kernel.run(
        "import torch\nlayer = torch.nn.Linear(2, 2)\nbest = torch.optim.SGD(layer.parameters(), lr=0.1)\n"
        "def closure(): raise ValueError('mine')\nbest.step(closure)"
    )
    assert ran.reply["evalue"] == "mine" and "guest" not in ran.traceback


@needs("tqdm")
def test_tqdm_tells_how_much_is_to_come(governed: Governed) -> None:
    governed.backend.generous = True
    request = governed.kernel.submit(
        "import io, tqdm, jupyter_salus\n"
        "for i in tqdm.tqdm(range(3000), file=io.StringIO()): sum(range(10000)); jupyter_salus.boundary()"
    )
    assert governed.kernel.collect(request).status == "ok"
    governed.backend.expect(CellFinished)
    told = [one.remaining for one in governed.backend.all(Progress) if one.remaining is not None]
    assert told and told[0] <= 3000 and told == sorted(told, reverse=True)


@needs("keras")
@pytest.mark.timeout(240)
def test_keras_batches_pass_turns_and_train_the_same_model(governed: Governed, plain: Kernel) -> None:
    request = governed.kernel.submit(KERAS)
    theirs = plain.submit(KERAS)
    governed.backend.grant(governed.backend.expect(TurnWanted).ticket)
    governed.pass_a_turn(1)
    governed.pass_a_turn(2)
    ran = governed.kernel.collect(request)
    assert ran.status == "ok", ran.traceback
    assert ran.text == plain.collect(theirs).text
    governed.backend.expect(CellFinished)
    assert all(one.wants_more for one in governed.backend.all(TurnReleased)[:2])
    told = [one.remaining for one in governed.backend.all(Progress) if one.remaining is not None]
    assert told and told[0] <= 256 and told == sorted(told, reverse=True)
    failing = (
        "class Bad(keras.callbacks.Callback):\n    def on_train_batch_begin(self, batch, logs=None): raise ValueError('mine')\n"
        "model.fit(data, target, verbose=0, callbacks=[Bad()])"
    )
    ran = governed.kernel.run(failing)
    assert ran.reply["evalue"] == "mine" and "guest" not in ran.traceback
    spec = governed.kernel.run("print(type(sys.modules['keras.src.callbacks.callback_list'].__spec__))").text
    assert "_WatchedSpec" not in spec
