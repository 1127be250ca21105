"""Several processes: every method gives the same weights on both of two CPU processes, and resumes to the same bits.

python -m torture.devices answer.json volminnet dmi  # these methods, in two processes that it starts
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

from torture.outcome import Outcome

EPOCHS = 12
MOST_APART = 0.12
"""Largest difference between the accuracies of one and of two processes, on 360 digits and with other batches."""


def run(methods: tuple[str, ...] = (), torchrun: bool = False) -> list[Outcome]:
    """Train each method on digits in one and in two processes."""
    from volmin.methods import names

    chosen = methods or tuple(names())
    start = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"] if torchrun else []
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        command = [sys.executable, *start, "-m", "torture.devices", str(answer), *chosen]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        root = Path(__file__).parents[1]
        done = subprocess.run(command, capture_output=True, text=True, timeout=1800, cwd=root, env=environment)
        if not answer.exists():
            return [Outcome("devices", ", ".join(chosen), tried=1, failures=[done.stderr.strip()[-300:]])]
        found = json.loads(answer.read_text())
    outcomes = []
    for name in chosen:
        outcome = Outcome("devices", f"{name} in two processes{' of torchrun' if torchrun else ''}")
        for what, right in found[name]["checks"].items():
            outcome.count("right" if right else "failed", what)
        outcome.figures, outcome.seconds = found[name]["accuracies"], found[name]["seconds"]
        outcomes.append(outcome)
    return outcomes


class StoppedError(Exception):
    """Raised on all processes to interrupt a training."""


def _weights(method: Any) -> str:
    digest = hashlib.sha256()
    for name, value in sorted(method.state_dict().items()):
        digest.update(name.encode() + value.cpu().numpy().tobytes())
    return digest.hexdigest()


def _work(answer: Path, methods: list[str]) -> None:
    """On every rank: train in two processes, interrupt and resume, train on one device, and compare."""
    import time

    import volmin
    from volmin.experiments import run as runs
    from volmin.experiments import spec
    from volmin.experiments.scores import held_out_figures
    from volmin.training import thread_limit
    from volmin.training.devices import OneDevice, launch

    warnings.simplefilter("ignore")
    fabric: Any = launch(2)
    dataset = volmin.load_dataset("digits")
    found: dict[str, Any] = {}

    def train(name: str, where: Any, checkpoint: Path | None, stop_after: int = 0) -> tuple[str, float]:
        chosen = spec.resolve("digits", "pair:0.2", name, epochs=EPOCHS, devices=where.world_size)
        experiment = runs.set_up(chosen, dataset=dataset)

        def stop(history: list[Any]) -> None:
            if len(history) == stop_after:
                raise StoppedError

        with thread_limit(1):
            volmin.fit(
                experiment.method,
                experiment.train,
                experiment.validation,
                chosen.recipe,
                checkpoint,
                seed=1,
                fabric=where,
                on_epoch=stop,
            )
        accuracy = held_out_figures(experiment.method, experiment.test, experiment.T)["accuracy"]
        return _weights(experiment.method), accuracy

    shared = Path(fabric.broadcast(tempfile.mkdtemp()))
    for name in methods:
        start = time.perf_counter()
        weights, accuracy = train(name, fabric, None)
        try:
            train(name, fabric, shared / name, stop_after=1)
        except StoppedError:
            fabric.barrier()
        another = ""
        try:
            train(name, OneDevice("cpu"), shared / name)
        except ValueError as error:
            another = str(error)
        fabric.barrier()
        resumed, _ = train(name, fabric, shared / name)
        everywhere = fabric.broadcast((weights, resumed))
        agree = fabric.all_reduce(float(everywhere == (weights, resumed)), reduce_op="sum").item() == fabric.world_size
        # On every rank, because a loss over the whole batch needs those of the others.
        _, alone = train(name, OneDevice("cpu"), None)
        if fabric.is_global_zero:
            checks = {
                "both processes have the same weights": agree,
                "an interrupted run is resumed to the same bits": resumed == weights,
                "another number of processes is refused": "devices: 2 there, 1 here" in another,
                "the accuracy is that of one process": abs(alone - accuracy) < MOST_APART,
            }
            accuracies = {"one_process": alone, "two_processes": accuracy}
            found[name] = {"checks": checks, "accuracies": accuracies, "seconds": time.perf_counter() - start}
        fabric.barrier()
    if fabric.is_global_zero:
        answer.write_text(json.dumps(found))


if __name__ == "__main__":
    _work(Path(sys.argv[1]), sys.argv[2:])
