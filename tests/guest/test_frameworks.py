"""Loops as people write them with frameworks take turns, whichever boundary is found in them, and end as they should."""

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


#: Repeats an expression until the flag is there, in C: no back-edge of the user's is in it.
IN_C = "collections.deque(iter(lambda: ({step}) is None or os.path.exists(FLAG), True), maxlen=0)\nprint('ended')"

TORCH = """
import collections, torch
class Data(torch.utils.data.Dataset):
    def __len__(self): return 10**9
    def __getitem__(self, index): return torch.full((32,), float(index % 7))
model = torch.nn.Linear(32, 32)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
batches = iter(torch.utils.data.DataLoader(Data(), batch_size=16))
"""
TENSORFLOW = """
import tensorflow as tf
weights = tf.Variable(tf.zeros((64, 64)))
data = tf.random.normal((64, 64), seed=1)
@tf.function
def step(data):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((data @ weights - data) ** 2)
    weights.assign_sub(0.1 * tape.gradient(loss, weights))
    return loss
"""
KERAS2 = """
import numpy, tf_keras
class Until(tf_keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None): self.model.stop_training = os.path.exists(FLAG)
model = tf_keras.Sequential([tf_keras.layers.Dense(8, input_shape=(8,))])
model.compile(optimizer="sgd", loss="mse")
data = numpy.zeros((256, 8), "float32")
"""
JAX = """
import jax, jax.numpy as jnp
@jax.jit
def step(value): return jnp.tanh(value @ value)
value = jnp.ones((64, 64)) / 64
"""
SKLEARN = """
import numpy
from sklearn.linear_model import SGDClassifier
data, target = numpy.random.default_rng(0).normal(size=(64, 32)), numpy.arange(64) % 3
classifier = SGDClassifier()
"""
LIGHTNING = """
import logging, warnings, torch, lightning
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.simplefilter("ignore")
class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)
    def training_step(self, batch, index):
        self.trainer.should_stop = os.path.exists(FLAG)
        return (self.layer(batch[0]) ** 2).mean()
    def configure_optimizers(self): return torch.optim.SGD(self.parameters(), lr=1e-3)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.zeros(512, 8)), batch_size=8)
trainer = lightning.Trainer(max_epochs=-1, accelerator="cpu", logger=False, enable_checkpointing=False,
                            enable_progress_bar=False, enable_model_summary=False)
"""
TRAINER = """
import torch, transformers
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)
    def forward(self, x): return {"loss": (self.layer(x) ** 2).mean()}
class Until(transformers.TrainerCallback):
    def on_step_end(self, args, state, control, **more): control.should_training_stop = os.path.exists(FLAG)
arguments = transformers.TrainingArguments(output_dir=FLAG + "-out", max_steps=10**6, report_to=[], save_strategy="no",
                                           disable_tqdm=True, logging_strategy="no", use_cpu=True)
trainer = transformers.Trainer(Model(), arguments, train_dataset=[{"x": torch.zeros(8)}] * 512, callbacks=[Until()])
"""

#: What a case needs, what it prepares without a turn, and its loop.
CASES = {
    "torch inference without gradients": (
        "torch",
        TORCH,
        "with torch.no_grad():\n    " + IN_C.format(step="model(next(batches))"),
    ),
    "torch steps in library code": (
        "torch",
        TORCH,
        IN_C.format(step="optimizer.zero_grad(), model(next(batches)).sum().backward(), optimizer.step()"),
    ),
    "torch steps that the scaler skips": (
        "torch",
        TORCH + "scaler = torch.amp.GradScaler('cpu')\nstarted = model.weight.detach().clone()\n",
        "while not os.path.exists(FLAG):\n"
        "    scaler.scale((model(next(batches)) * float('inf')).sum()).backward()\n"
        "    scaler.step(optimizer); scaler.update(); optimizer.zero_grad()\n"
        "print('ended' if torch.equal(started, model.weight) else 'stepped')",
    ),
    "torch gradients that accumulate": (
        "torch",
        TORCH,
        "for number, batch in enumerate(batches):\n"
        "    model(batch).mean().backward()\n"
        "    if number % 4 == 3: optimizer.step(); optimizer.zero_grad()\n"
        "    if os.path.exists(FLAG): break\n"
        "print('ended')",
    ),
    "torch with exceptions in the middle": (
        "torch",
        TORCH,
        "while not os.path.exists(FLAG):\n"
        "    try:\n        model(next(batches)).missing\n    except AttributeError: pass\n"
        "print('ended')",
    ),
    "tensorflow, a loop of one's own": (
        "tensorflow",
        TENSORFLOW + "step(data)\n",
        "while not os.path.exists(FLAG): step(data)\nprint('ended')",
    ),
    "keras 2": (
        "tf_keras",
        KERAS2,
        "model.fit(data, data, batch_size=8, epochs=10**6, verbose=0, callbacks=[Until()])\nprint('ended')",
    ),
    "jax, jitted": (
        "jax",
        JAX + "step(value)\n",
        "while not os.path.exists(FLAG): value = step(value).block_until_ready()\nprint('ended')",
    ),
    "scikit-learn, partial_fit": (
        "sklearn",
        SKLEARN,
        "while not os.path.exists(FLAG): classifier.partial_fit(data, target, classes=[0, 1, 2])\nprint('ended')",
    ),
    "lightning": ("lightning", LIGHTNING, "trainer.fit(Module(), loader)\nprint('ended')"),
    "transformers' Trainer": ("transformers", TRAINER, "trainer.train()\nprint('ended')"),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.timeout(300)
def test_a_loop_takes_turns(governed: Governed, name: str) -> None:
    module, prepare, loop = CASES[name]
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} isn't installed")
    flag = governed.flag()
    governed.backend.generous = True
    ran = governed.kernel.run(f"FLAG = {str(flag)!r}\n" + prepare)
    assert ran.status == "ok", ran.traceback
    governed.renew()
    request = governed.kernel.submit(loop)
    governed.backend.grant(governed.backend.expect(TurnWanted).ticket)
    governed.pass_a_turn()
    governed.pass_a_turn()
    governed.backend.generous = True
    ran = governed.finish(request, flag)
    assert ran.text.endswith("ended\n") and ran.status == "ok", ran.traceback


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch isn't installed")
def test_a_batch_with_its_step_is_one_iteration_and_a_batch_without_one_as_well(governed: Governed) -> None:
    governed.backend.generous = True
    governed.kernel.run(TORCH)
    governed.renew()
    governed.backend.generous = True
    # In a turn from its first batch on.
    governed.kernel.run(
        "import jupyter_salus\n"
        "while sys.modules['_jupyter_salus.guest'].running().turn.epoch is None: sum(range(1000)); jupyter_salus.boundary()\n"
        "told = sys.modules['_jupyter_salus.guest'].running().tally\n"
        "before = told.total_iterations + told.iterations\n"
        "for number, batch in zip(range(40), batches):\n"
        "    model(batch).mean().backward()\n"
        "    if number % 4 == 3: optimizer.step()\n"
        "counted = told.total_iterations + told.iterations - before"
    )
    # 40 batches, and the beginning of the one after them.
    assert governed.kernel.run("print(counted)").text == "40\n"


@pytest.mark.skipif(importlib.util.find_spec("keras") is None, reason="keras isn't installed")
@pytest.mark.timeout(300)
def test_several_steps_per_execution_count_as_several_iterations(governed: Governed) -> None:
    governed.backend.generous = True
    ran = governed.kernel.run(
        "import keras, numpy\n"
        "model = keras.Sequential([keras.Input((32,)), keras.layers.Dense(64), keras.layers.Dense(1)])\n"
        "model.compile(optimizer='sgd', loss='mse', steps_per_execution=8)\n"
        "data, target = numpy.zeros((4096, 32), 'float32'), numpy.zeros((4096, 1), 'float32')\n"
        "model.fit(data, target, batch_size=8, epochs=1, verbose=0)"
    )
    assert ran.status == "ok", ran.traceback
    governed.renew()
    governed.backend.generous = True
    assert governed.kernel.run("model.fit(data, target, batch_size=8, epochs=4, verbose=0);").status == "ok"
    governed.backend.expect(CellFinished)
    # 4 epochs of 512 batches; what came before the turn isn't counted.
    assert 512 < governed.backend.iterations() <= 2048
    told = [one.remaining for one in governed.backend.all(Progress) if one.remaining is not None]
    assert told == sorted(told, reverse=True)


def test_all_threads_of_a_session_stand_while_it_has_no_turn(governed: Governed) -> None:
    flag, log = governed.flag(), governed.folder / "threads"
    request = governed.kernel.submit(
        "import jupyter_salus\n"
        f"out = open({str(log)!r}, 'w')\n"
        f"def work():\n    while not os.path.exists({str(flag)!r}):\n"
        "        sum(range(2000)); jupyter_salus.boundary(); out.write('x'); out.flush()\n"
        "threads = [threading.Thread(target=work) for _ in range(3)]\n"
        "for one in threads: one.start()\n"
        "work()\nfor one in threads: one.join()\nprint('ended')"
    )
    governed.backend.grant(governed.backend.expect(TurnWanted).ticket)
    ticket = governed.backend.released(governed.backend.revoke()).ticket
    # Each thread passes at most one more boundary's worth of work before it stands.
    session = governed.kernel.client.session
    sizes: list[int] = []
    while len(sizes) < 3 or sizes[-1] != sizes[-3]:
        governed.kernel.client.control_channel.send(session.msg("kernel_info_request"))
        governed.kernel.client.get_control_msg(timeout=60)
        sizes.append(log.stat().st_size)
    governed.backend.generous = True
    governed.backend.grant(ticket or 0)
    assert governed.finish(request, flag).text == "ended\n"
