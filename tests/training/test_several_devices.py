"""Data-parallel training with a user's own loader, in two processes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import json, sys
from pathlib import Path
import torch
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset, WeightedRandomSampler
import volmin
from volmin.methods import VolMinNet
from volmin.training import launch

folder, kind, precision, stop = Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
fabric = launch(2)
y = torch.arange(240) % 3
x = torch.randn(240, 4, generator=torch.Generator().manual_seed(0)) + 3 * torch.eye(4)[y]
data = TensorDataset(x, y)
if kind == "distributed":
    sampler = DistributedSampler(data, num_replicas=fabric.world_size, rank=fabric.global_rank)
else:
    sampler = WeightedRandomSampler([1.0] * 240, 240)
loader = DataLoader(data, batch_size=20, sampler=sampler)

torch.manual_seed(1)
net = torch.nn.Sequential(volmin.networks.mlp(4, 8, (16,)), torch.nn.Dropout(0.1), torch.nn.Linear(8, 3))
method = VolMinNet(net, 3)
checkpoint = None if stop == 0 else folder / "c.ckpt"
epochs = stop or 4
history = volmin.fit(
    method, loader, DataLoader(data, batch_size=60), volmin.Recipe(epochs=epochs, lr=0.05), checkpoint,
    fabric=fabric, precision=precision, patience=3,
)
weights = torch.cat([value.flatten() for value in method.state_dict().values()]).tolist()
scores = [record["val_accuracy"] for record in history]
(folder / f"{stop}-{fabric.global_rank}.json").write_text(json.dumps({"weights": weights, "scores": scores}))
"""


@pytest.mark.cluster
@pytest.mark.parametrize(("kind", "precision"), [("distributed", "32"), ("weighted", "16-mixed")])
def test_two_processes_learn_together_and_continue_to_the_same_bits(tmp_path, kind, precision):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)

    def train(stop):
        command = [sys.executable, str(script), str(tmp_path), kind, precision, str(stop)]
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
        return [json.loads(Path(tmp_path / f"{stop}-{rank}.json").read_text()) for rank in range(2)]

    first, second = train(0)
    assert first == second, "both processes end with the same weights"
    assert first["scores"][-1] > 0.9
    train(2)
    assert train(4)[0]["weights"] == first["weights"], "two epochs, then two more, are four"
