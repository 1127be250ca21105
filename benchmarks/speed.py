"""Speed of training and audits, as ratios within one run, since machines differ and other load slows both sides.

    python benchmarks/speed.py                        # everything, about ten minutes on two cores
    python benchmarks/speed.py epoch step             # only these
    python benchmarks/speed.py before --source PATH   # against another checkout's src folder
    python benchmarks/speed.py --json speed.json

Images are random bytes of MNIST's shape: the time does not depend on their content.
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from volmin import accelerated, methods, networks
from volmin.data import TensorLoader
from volmin.io.atomic import read_json, write_json
from volmin.training import Recipe, clean_probs, fit

MEAN, STD = 0.1307, 0.3081
TRAIN, VALIDATION, TEST = 54_000, 6_000, 10_000


def images(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Random bytes in the shape of MNIST, and labels."""
    generator = np.random.default_rng(seed)
    return generator.integers(0, 256, (count, 28, 28), np.uint8), generator.integers(0, 10, count)


# The textbook loop: one image at a time in worker processes, and the loss is read in every step.


class Pictures(Dataset):
    """A data set of PIL images with the operations of the usual transforms, ToTensor and Normalize."""

    def __init__(self, x: np.ndarray, y: np.ndarray) -> None:
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        picture = Image.fromarray(self.x[index])
        width, height = picture.size
        pixels = torch.from_numpy(np.array(picture, copy=True)).view(height, width, -1)
        tensor = pixels.permute(2, 0, 1).contiguous().float().div(255)
        mean, std = (torch.as_tensor([value])[:, None, None] for value in (MEAN, STD))
        return tensor.clone().sub_(mean).div_(std), int(self.y[index])


class InMemory:
    """Batches of normalised tensors in memory, for the textbook loop."""

    def __init__(self, x: np.ndarray, y: np.ndarray, batch_size: int, shuffle: bool) -> None:
        self.x = torch.from_numpy(x)[:, None].float().div_(255).sub_(MEAN).div_(STD)
        self.y, self.batch_size, self.shuffle = torch.from_numpy(y), batch_size, shuffle

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        order = torch.randperm(len(self.y)) if self.shuffle else torch.arange(len(self.y))
        for rows in order.split(self.batch_size):
            yield self.x[rows], self.y[rows]


class PlainLeNet(nn.Module):
    """LeNet-5 with the layers in the order of the published code."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 6, 5, padding=2), nn.Conv2d(6, 16, 5)
        self.fc1, self.fc2, self.fc3 = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2).flatten(1)
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x)))))


class PlainTransition(nn.Module):
    """T as in the published code."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(-2 * torch.ones(10, 10))

    def forward(self) -> Tensor:
        A = torch.eye(10) + torch.sigmoid(self.w) * (1 - torch.eye(10))
        return F.normalize(A, p=1, dim=0)


@cache
def parts(share: float) -> list[tuple[np.ndarray, np.ndarray]]:
    """Images for training, validation and test; generated once, outside the measured time."""
    return [images(int(share * count), seed) for seed, count in enumerate((TRAIN, VALIDATION, TEST))]


def textbook(share: float, epochs: int = 1, workers: int = 4, in_memory: bool = False) -> None:
    """VolMinNet as it is commonly written, with validation and test after every epoch."""
    train, val, test = (
        InMemory(*part, batch_size=128, shuffle=number == 0)
        if in_memory
        else DataLoader(Pictures(*part), batch_size=128, shuffle=number == 0, num_workers=workers)
        for number, part in enumerate(parts(share))
    )
    net, transition = PlainLeNet(), PlainTransition()
    of_net = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    of_transition = torch.optim.Adam(transition.parameters(), lr=0.01)
    for _ in range(epochs):
        net.train()
        for x, y in train:
            clean, T = F.softmax(net(x), dim=1), transition()
            loss = F.nll_loss((clean @ T.T).log(), y) + 1e-4 * T.slogdet().logabsdet
            of_net.zero_grad()
            of_transition.zero_grad()
            loss.backward()
            of_net.step()
            of_transition.step()
            loss.item()
        net.eval()
        with torch.no_grad():
            for x, y in val:
                F.nll_loss((F.softmax(net(x), dim=1) @ transition().T).log(), y).item()
            sum((net(x).argmax(1) == y).sum().item() for x, y in test)


@cache
def loaders(share: float) -> list[TensorLoader]:
    """The same images as tensors."""
    return [
        TensorLoader(torch.from_numpy(x)[:, None].float().div_(255).sub_(MEAN).div_(STD), y, size)
        for size, (x, y) in zip((128, 1000, 1000), parts(share), strict=True)
    ]


def lenet(fast: bool = True) -> nn.Module:
    """LeNet-5, accelerated if asked for and available."""
    if fast and accelerated.is_available("lenet5"):
        return accelerated.build("lenet5", (1, 28, 28), 10)
    return networks.lenet5(10)


def ours(share: float, epochs: int = 1, method: str = "volminnet", fast: bool = True, **options: Any) -> None:
    """The same training through ``fit``."""
    train, val, test = loaders(share)
    learner = methods.get(method)(lenet(fast), 10, **options)

    def accuracy() -> dict[str, float]:
        predicted = clean_probs(learner, (batch.x for batch in test)).argmax(1)
        return {"accuracy": (predicted == test.y).double().mean().item()}

    with accelerated.thread_share(learner):
        fit(learner, train, val, Recipe(epochs=epochs), measure=accuracy)


def seconds(work: Callable[[], object], repeats: int = 3, warm_up: bool = True) -> float:
    """The smallest of a few times, which other load disturbs least."""
    if warm_up:
        work()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def epoch(share: float) -> dict[str, float]:
    """An epoch of VolMinNet with validation and test, from a textbook loop to ours: seconds, and times as fast."""
    variants = {
        "textbook loop, four worker processes": (CORES, lambda: textbook(share)),
        "textbook loop, data in memory": (CORES, lambda: textbook(share, in_memory=True)),
        "our loop, LeNet-5 of the library": (CORES, lambda: ours(share, fast=False)),
        "our loop, compiled LeNet-5": (CORES, lambda: ours(share)),
        "our loop, compiled LeNet-5, one thread": (1, lambda: ours(share)),
    }
    times = dict.fromkeys(variants, math.inf)
    for _ in range(4):  # alternately, so that other load disturbs all of them
        for name, (threads, work) in variants.items():
            torch.set_num_threads(threads)
            times[name] = min(times[name], seconds(work, 1, warm_up=False) / share)
    textbook_time = next(iter(times.values()))
    ratios = {f"times as fast: {name}": textbook_time / taken for name, taken in list(times.items())[1:]}
    return {f"{name}, s": taken for name, taken in times.items()} | ratios


def sweep(share: float) -> dict[str, float]:
    """Four runs of four epochs in a worker per core, one thread each, against four textbook loops one after another."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import torch, speed; torch.set_num_threads({threads})\n"
        "for _ in range({runs}): speed.{function}(1.0, epochs=4)"
    )

    def taken(function: str, threads: int, runs: Sequence[int]) -> float:
        begin = time.perf_counter()
        processes = [
            subprocess.Popen([sys.executable, "-W", "ignore", "-c", text, str(Path(__file__).parent)])
            for text in (code.format(function=function, threads=threads, runs=each) for each in runs)
        ]
        for process in processes:
            process.wait()
        return time.perf_counter() - begin

    fast = taken("ours", 1, [4 // CORES + (number < 4 % CORES) for number in range(min(4, CORES))])
    # They run one after another, so four take four times as long as one; only one is measured.
    slow = 4 * taken("textbook", CORES, [1])
    return {"ours, s": fast, "textbook": slow, "textbook / ours": slow / fast}


def an_epoch(method: str, net: nn.Module, num_classes: int, loader: TensorLoader, epochs: int, **options: Any) -> float:
    """The fastest epoch of a method's last phase."""
    learner = methods.get(method)(net, num_classes)
    history = fit(learner, loader, recipe=Recipe(epochs=epochs), **options)
    return min(record["seconds"] for record in history if record["phase"] == history[-1]["phase"])


def step(share: float) -> dict[str, float]:
    """A step of VolMinNet against one of cross-entropy: MLPs on 512 features, batches of 256."""
    torch.set_num_threads(1)
    found = {}
    for width in (128, 512):
        for C in (10, 100, 1000):
            # With very many classes, epochs of a realistic length: each begins with a new tangent of the volume.
            steps, turns = (200, 3) if C == 1000 else (50, 15)
            x, y = torch.randn(256 * steps, 512), torch.randint(0, C, (256 * steps,))
            loader = TensorLoader(x, y, 256)

            def times(name: str, C: int = C, width: int = width, loader: TensorLoader = loader) -> float:
                return an_epoch(name, networks.mlp(512, C, (width,)), C, loader, 4)

            # Measured alternately, and the median of the ratios: other load disturbs both equally often.
            found[f"{width} hidden units, C = {C}"] = median(
                times("volminnet") / times("cross_entropy") for _ in range(turns)
            )
    return found


def every_method(share: float) -> dict[str, float]:
    """An epoch of each method's last phase against one of cross-entropy, LeNet-5, with validation."""
    torch.set_num_threads(1)
    loader = loaders(share)[0]

    def times(name: str) -> float:
        return an_epoch(name, lenet(), 10, loader, 2, val_loader=loader)

    # The base is measured again beside every method, since the load of the machine changes.
    return {name: times(name) / times("cross_entropy") for name in methods.names() if name != "cross_entropy"}


def growth(share: float) -> dict[str, float]:
    """How an epoch of LeNet-5 grows with the rows, and a step of an MLP with the classes, against the smallest."""
    torch.set_num_threads(1)
    rows = {part: seconds(lambda part=part: ours(part), 2) for part in (share / 4, share / 2, share)}
    found = {f"{part / share:.0%} of the rows": taken / rows[share / 4] for part, taken in rows.items()}
    x = torch.randn(256 * 20, 512)
    steps = {}
    for C in (10, 100, 1000):
        learner = methods.get("volminnet")(networks.mlp(512, C), C)
        loader = TensorLoader(x, torch.randint(0, C, (len(x),)), 256)
        steps[C] = seconds(partial(fit, learner, loader, recipe=Recipe(epochs=1)))
    return found | {f"{C} classes": taken / steps[10] for C, taken in steps.items()}


def limit(share: float) -> dict[str, float]:
    """The floating-point work of an epoch as plain matrix products, against the epoch."""
    torch.set_num_threads(1)
    # Multiplications of one image through LeNet-5: two convolutions and three linear layers.
    forward = 28 * 28 * 6 * 25 + 10 * 10 * 16 * 150 + 400 * 120 + 120 * 84 + 84 * 10
    operations = 2 * forward * (3 * TRAIN + VALIDATION + TEST)
    a, b = torch.randn(1024, 1024), torch.randn(1024, 1024)
    rate = 2 * 1024**3 / seconds(lambda: a @ b, 20)
    fast = seconds(lambda: ours(share), 2) / share
    return {
        "peak, Gflop/s": rate / 1e9,
        "work, s at the peak": operations / rate,
        "epoch / limit": fast * rate / operations,
    }


def memory(share: float) -> dict[str, float]:
    """Peak memory of one full epoch in a process of its own."""
    here, code = (
        str(Path(__file__).parent),
        "import sys; sys.path.insert(0, sys.argv[1]); import speed; speed.{}; print(speed.peak())",
    )
    measured = {}
    for name, call in (("imports alone, MB", "images(1, 0)"), ("an epoch of ours, MB", "ours(1.0)")):
        done = subprocess.run(
            [sys.executable, "-c", code.format(call), here], capture_output=True, text=True, check=True
        )
        measured[name] = float(done.stdout)
    return measured


def peak() -> float:
    """Peak memory of this process in MB; getrusage may report that of its parent."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def start_up(share: float) -> dict[str, float]:
    """Seconds until help is printed and names are imported."""
    commands = {
        "volmin --help": ["-m", "volmin", "--help"],
        "import volmin": ["-c", "import volmin"],
        "import volmin, NoisyLabelClassifier": ["-c", "from volmin import NoisyLabelClassifier"],
        "import torch": ["-c", "import torch"],
    }
    return {
        name: seconds(
            lambda command=command: subprocess.run([sys.executable, *command], capture_output=True, check=True)
        )
        for name, command in commands.items()
    }


_AUDIT = """
import resource, volmin
from sklearn.datasets import load_digits
from volmin import noise
x, clean = load_digits(return_X_y=True)
labels = noise.corrupt(clean, noise.asymmetric(10, 0.3, 0), 0)
def processor_seconds():
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(part.ru_utime + part.ru_stime for part in used)
audit, start = volmin.audit, processor_seconds()
audit(labels, features=x, random_state=0)
print(processor_seconds() - start)
"""
_STEP = """
import torch
from volmin import Recipe, fit, methods, networks
from volmin.data import TensorLoader
torch.set_num_threads(1)
loader = TensorLoader(torch.randn(256 * 50, 512), torch.randint(0, 10, (256 * 50,)), 256)
history = fit(methods.get("volminnet")(networks.mlp(512, 10), 10), loader, recipe=Recipe(epochs=8))
print(min(record["seconds"] for record in history))
"""
_EPOCH = """
import torch
from contextlib import nullcontext
from volmin import Recipe, fit, methods, networks
from volmin.data import TensorLoader
try:
    from volmin import accelerated
    net, share = accelerated.build("lenet5", (1, 28, 28), 10), accelerated.thread_share
except ImportError:
    net, share = networks.lenet5(10), lambda module: nullcontext()
method = methods.get("volminnet")(net, 10)
loader = TensorLoader(torch.randn(13_500, 1, 28, 28), torch.randint(0, 10, (13_500,)), 128)
with share(method):
    history = fit(method, loader, recipe=Recipe(epochs=4))
print(min(record["seconds"] for record in history))
"""


_BEFORE = {"audit of digits, processor time": _AUDIT, "step, MLP, C = 10": _STEP, "epoch, LeNet-5": _EPOCH}


def before(share: float) -> dict[str, float]:
    """Time of this version over that of another checkout: an audit of digits, a step with an MLP, a LeNet-5 epoch."""
    if SOURCE is None:
        return {}
    found = {}
    here = Path(__file__).parents[1] / "src"
    for name, code in _BEFORE.items():
        if not name.startswith(PART):
            continue

        def taken(source: Path, code: str = code) -> float:
            command = [sys.executable, "-W", "ignore", "-c", code]
            environment = os.environ | {"PYTHONPATH": str(source)}
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
            return float(done.stdout.split()[-1])

        found[name] = median(taken(here) / taken(SOURCE) for _ in range(5))
    return found


SOURCE: Path | None = None
"""The src folder of the checkout that ``before`` compares with."""
PART = ""
"""Beginning of the names of what ``before`` compares."""
BENCHMARKS: dict[str, Callable[[float], dict[str, float]]] = {
    "epoch": epoch,
    "before": before,
    "sweep": sweep,
    "step": step,
    "methods": every_method,
    "growth": growth,
    "limit": limit,
    "memory": memory,
    "start-up": start_up,
}
CORES = len(os.sched_getaffinity(0))


def main() -> None:
    """Run the chosen benchmarks, print them as tables, and write them to a file if asked for."""
    global SOURCE, PART
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*BENCHMARKS, []], default=[])
    parser.add_argument("--share", type=float, default=0.25, help="share of the 70,000 images; results are scaled")
    parser.add_argument("--source", type=Path, help="src folder of the checkout that `before` compares with")
    parser.add_argument("--part", choices=["audit", "step", "epoch"], default="", help="what `before` compares; all")
    parser.add_argument("--json", type=Path, help="file for the results; those of other benchmarks in it are kept")
    arguments = parser.parse_args()
    SOURCE, PART = arguments.source, arguments.part
    warnings.filterwarnings("ignore", message="This DataLoader will create")
    console, found = Console(highlight=False), {}
    for name in arguments.names or [name for name in BENCHMARKS if name != "before" or SOURCE]:
        found[name] = BENCHMARKS[name](arguments.share)
        table = Table(title=(BENCHMARKS[name].__doc__ or "").split("\n")[0], title_justify="left", box=None)
        table.add_column(name, style="dim")
        table.add_column("", justify="right")
        for key, value in found[name].items():
            table.add_row(key, f"{value:,.2f}")
        console.print(table, "")
    if arguments.json:
        recorded = read_json(arguments.json) if arguments.json.exists() else {}
        if PART:
            found["before"] = recorded.get("before", {}) | found["before"]
        write_json(arguments.json, recorded | {"cores": CORES, "torch": torch.__version__, **found})


if __name__ == "__main__":
    main()
