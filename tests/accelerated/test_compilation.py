import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("numba")

TRAINING = """
import hashlib, torch, volmin
from volmin import accelerated, methods
from volmin.data import TensorLoader
torch.set_num_threads(1)
torch.manual_seed(0)
x, y = torch.randn(300, 1, 28, 28), torch.randint(0, 10, (300,))
method = methods.VolMinNet(accelerated.build("lenet5", (1, 28, 28), 10), 10)
volmin.fit(method, TensorLoader(x, y, 100), recipe=volmin.Recipe(epochs=1, lr=0.05))
weights = b"".join(value.numpy().tobytes() for value in method.state_dict().values())
print(hashlib.sha256(weights).hexdigest())
"""


@pytest.mark.slow
def test_cached_code_gives_the_same_bits_as_newly_compiled_code(tmp_path: Path):
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", TRAINING]
    first, second = (
        subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout for _ in range(2)
    )
    assert list(tmp_path.rglob("*.nbc"))
    assert len(first.strip()) == 64
    assert first == second
