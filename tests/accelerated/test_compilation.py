"""Compiled loops give the same bits whether they were compiled just now or come from the cache."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("numba")

TRAINING = """
import hashlib, torch, volmin
from volmin import methods, networks
from volmin.data import TensorLoader
torch.set_num_threads(1)
torch.manual_seed(0)
x, y = torch.randn(600, 1, 28, 28), torch.randint(0, 10, (600,))
for build in (networks.lenet5, lambda C: torch.nn.Sequential(torch.nn.Flatten(), networks.mlp(784, C))):
    method = methods.get("volminnet")(build(10), 10)
    volmin.fit(method, TensorLoader(x, y, 100), recipe=volmin.Recipe(epochs=1, lr=0.05))
    weights = b"".join(value.numpy().tobytes() for value in method.state_dict().values())
    print(hashlib.sha256(weights).hexdigest())
"""


@pytest.mark.slow
def test_a_run_that_compiles_and_one_that_finds_the_code_end_in_the_same_bits(tmp_path):
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", TRAINING]
    first, second = (
        subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout for _ in range(2)
    )
    assert list(tmp_path.rglob("*.nbc"))
    assert first == second
    assert len(set(first.split())) == 2
