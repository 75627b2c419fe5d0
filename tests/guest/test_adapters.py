"""Frameworks' boundaries: turns pass between steps and batches, results are those of a plain kernel, nothing shows."""

from __future__ import annotations

import importlib.util

import pytest

from jupyter_salus.protocol.messages import CellFinished, Progress, TurnWanted
from tests.guest.conftest import Governed


@pytest.fixture
def governed(framework_kernel: Governed) -> Governed:
    """The kernel for frameworks, its backend with an empty record and granting by hand."""
    framework_kernel.renew()
    return framework_kernel


def needs(module: str) -> pytest.MarkDecorator:
    """Skip where the framework isn't installed."""
    return pytest.mark.skipif(importlib.util.find_spec(module) is None, reason=f"{module} isn't installed")


TORCH = """
import torch, hashlib
def train(steps):
    torch.manual_seed(0)
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.Adam(model.parameters())
    data = torch.randn(256, 64)
    for step in range(steps):
        optimizer.zero_grad()
        loss = (model(data) ** 2).mean()
        loss.backward()
        optimizer.step()
    return hashlib.sha256(b"".join(one.detach().numpy().tobytes() for one in model.parameters())).hexdigest()
"""

KERAS = """
import keras, hashlib, numpy
def train(epochs=4, callbacks=()):
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((32,)), keras.layers.Dense(32), keras.layers.Dense(1)])
    model.compile(optimizer="adam", loss="mse")
    data, target = numpy.random.rand(512, 32).astype("float32"), numpy.random.rand(512, 1).astype("float32")
    history = model.fit(data, target, epochs=epochs, batch_size=8, verbose=0, callbacks=list(callbacks))
    weights = hashlib.sha256(b"".join(one.tobytes() for one in model.get_weights())).hexdigest()
    return weights, history.history["loss"]
lists = sys.modules["keras.src.callbacks.callback_list"].CallbackList
"""

#: The same training as without a guest: its callback is left out.
PLAIN_KERAS = """
ours, lists.__init__ = lists.__init__, lists.__init__.__wrapped__
alone = train()
lists.__init__ = ours
print(type(sys.modules["keras.src.callbacks.callback_list"].__spec__).__name__)
"""


@needs("torch")
def test_torch_steps_pass_turns_and_train_the_same_model(governed: Governed) -> None:
    governed.backend.generous = True
    governed.kernel.run(TORCH + "\nalone = train(800)")
    governed.renew()
    request = governed.kernel.submit("print(train(800) == alone)")
    governed.backend.grant(governed.backend.expect(TurnWanted).ticket)
    governed.pass_a_turn()
    governed.pass_a_turn()
    assert governed.kernel.collect(request).text == "True\n"
    governed.backend.expect(CellFinished)
    assert governed.backend.iterations() > 50
    frameworks = [one.frameworks for one in governed.backend.all(Progress)][-1]
    assert frameworks is not None and "torch" in frameworks


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
def test_keras_batches_pass_turns_and_train_the_same_model(governed: Governed) -> None:
    governed.backend.generous = True
    assert governed.kernel.run(KERAS).status == "ok"
    assert governed.kernel.run(PLAIN_KERAS).text == "ModuleSpec\n"
    governed.renew()
    request = governed.kernel.submit("print(train() == alone)")
    governed.backend.grant(governed.backend.expect(TurnWanted).ticket)
    governed.pass_a_turn()
    governed.pass_a_turn()
    ran = governed.kernel.collect(request)
    assert ran.text == "True\n", ran.traceback
    governed.backend.expect(CellFinished)
    told = [one.remaining for one in governed.backend.all(Progress) if one.remaining is not None]
    assert told and told[0] <= 256 and told == sorted(told, reverse=True)
    ran = governed.kernel.run(
        "class Bad(keras.callbacks.Callback):\n"
        "    def on_train_batch_begin(self, batch, logs=None): raise ValueError('mine')\n"
        "train(callbacks=[Bad()])"
    )
    assert ran.reply["evalue"] == "mine" and "guest" not in ran.traceback
