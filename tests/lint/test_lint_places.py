"""What counts as the step: the loop that trains, the forward pass, and what is spared by a condition."""

from __future__ import annotations

import pytest

from meshwright.lint.run import Wanted, findings_of

STEP = "import torch\nfor batch in loader:\n    loss = model(batch)\n    loss.backward()\n    optimizer.step()\n"


def lines(text, rule="step.item", path="train.py"):
    return [each.line for each in findings_of(text, path, Wanted(select=(rule,)))]


@pytest.mark.parametrize(
    "text",
    [
        STEP + "    loss.item()\n",
        STEP + "    if flag:\n        loss.item()\n",
        STEP + "    try:\n        loss.item()\n    finally:\n        pass\n",
        "import torch\nfor step in range(9):\n    for micro in batches:\n        model(micro).backward()\n"
        "    optimizer.step()\n    x.item()\n",
        "import torch\nclass A(torch.nn.Module):\n    def forward(self, x):\n        return x.sum().item()\n",
        "import torch\nfrom torch import nn\nclass A(nn.Module):\n    def forward(self, x):\n"
        "        for y in x:\n            y.item()\n",
        "import torch\ndef training_step(batch):\n    return batch.item()\n",
        "import torch\ndef step(engine, loss):\n    loss.backward()\n    return loss.item()\n",
        "import torch\ndef one(batch):\n    model(batch).backward()\nfor batch in loader:\n    one(batch)\n    x.item()\n",
        "import torch\nclass T:\n    def one(self, batch):\n        model(batch).backward()\n    def run(self):\n"
        "        for batch in loader:\n            self.one(batch)\n            x.item()\n",
        "import mindspore as ms\ndef forward(x):\n    return net(x).item()\ngrad_fn = ms.value_and_grad(forward, None, weights)\n",
        "import mindspore as ms\ngrad_fn = ms.value_and_grad(forward, None, weights)\ndef one(x):\n    return grad_fn(x)\n"
        "for batch in dataset:\n    one(batch)\n    x.item()\n",
        "import torch\nwhile True:\n    scaler.scale(loss).backward()\n    scaler.step(optimizer)\n    loss.item()\n",
    ],
)
def test_what_runs_in_every_step(text):
    assert len(lines(text)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "import torch\nx.item()\n",
        "import torch\nfor batch in loader:\n    x.item()\n",
        "import torch\ndef all_of(loader):\n    for batch in loader:\n        model(batch).backward()\n"
        "for epoch in epochs:\n    all_of(loader)\n    x.item()\n",
        "import torch\ndef fill():\n    optimizer.step()\nfor state in states:\n    fill()\n    x.item()\n",
        "import torch\ndef one(batch):\n    model(batch).backward()\nfor batch in loader:\n    other.one(batch)\n    x.item()\n",
        STEP + "    if step % 10 == 0:\n        loss.item()\n",
        STEP + "    if args.log_loss:\n        loss.item()\n",
        STEP + "    if step % 10:\n        continue\n    loss.item()\n",
        STEP + "    try:\n        pass\n    except RuntimeError:\n        loss.item()\n",
        STEP + "    def later():\n        return loss.item()\n",
        STEP + "    if wrong:\n        raise ValueError(loss.item())\n",
        STEP + "loss.item()\n",
        "import torch\n@torch.no_grad()\ndef training_step(batch):\n    return batch.item()\n",
        "import torch\ndef evaluate(model):\n    for batch in loader:\n        model.backward()\n        loss.item()\n",
        "import torch\nclass A(torch.nn.Module):\n    def helper(self, x):\n        return x.item()\n",
        "import torch\nclass FooDataset(torch.nn.Module):\n    def forward(self, x):\n        return x.item()\n",
        "import torch\nclass A(torch.nn.Module):\n    def forward(self, x):\n        if self.verbose:\n            x.item()\n",
        STEP + "    x = np.array(3).item()\n",
        STEP + "    x = torch.tensor(losses).sum().item()\n",
    ],
)
def test_what_does_not(text):
    assert lines(text) == []


def test_a_script_that_evaluates_has_no_step():
    assert lines(STEP + "    loss.item()\n", path="evaluate.py") == []


def test_names_are_followed_through_imports():
    text = (
        "from torch.utils import data as d\nfrom torch.nn.parallel import DistributedDataParallel as DDP\nd.DataLoader(x)\nDDP(y)\n"
    )
    ids = [each.id for each in findings_of(text, "train.py", Wanted())]
    assert ids == ["loader.workers", "distributed.bucket-view"]


def test_debugging_that_somebody_asked_for_is_no_finding():
    text = (
        "import torch\nif args.debug:\n    torch.autograd.set_detect_anomaly(True)\n"
        "def set_determinism():\n    torch.use_deterministic_algorithms(True)\n"
    )
    assert findings_of(text, "train.py", Wanted()) == []


def test_two_values_in_two_branches_are_not_one_after_the_other():
    both = "export NCCL_ALGO=Tree\n{}export NCCL_ALGO=CollNet\n"
    assert lines(both.format(""), "launch", "run.sh") == [2]
    assert lines("if a; then\n  " + both.format("else\n  ") + "fi\n", "launch", "run.sh") == []


def test_what_looks_alike_and_is_something_else():
    norm = "import torch\ndef norm(x):\n    c = x - x.mean(-1)\n    return c * torch.rsqrt(c.pow(2).mean(-1) + 1e-6)\n"
    files = "import torch\nwhile len(loaded_files) > 2:\n    oldest = next(iter(loaded_files))\n"
    assert findings_of(norm, "train.py", Wanted()) == findings_of(files, "train.py", Wanted()) == []
