"""Time of a grid whose methods share their plain training, relative to separate runs, on MNIST.

    python benchmarks/shared_training.py --data-dir data/mnist

Forward, T-Revision, Dual T, DMI and cross-entropy with pair:0.45 and seed 1, preset ``fast``, where T-Revision and Dual
T begin with plain training of full length and revision takes a third of it, as in the preset of CIFAR-10. Every method
is run alone, then all of them as a grid; the weights they end with must be equal. CPU seconds of the process are
compared, because they depend less on other processes than the time that passes.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from volmin.experiments import run
from volmin.experiments.plan import plan
from volmin.experiments.source import load_named
from volmin.experiments.spec import RunSpec, resolve
from volmin.experiments.status import epochs_saved, read_status
from volmin.io.atomic import write_json

METHODS = {
    "forward": {},
    "t_revision": {"warm_up": 1.0, "revise": 1 / 3},
    "dual_t": {"warm_up": 1.0},
    "dmi": {},
    "cross_entropy": {},
}


def cpu_seconds(work: Callable[[], object]) -> float:
    """CPU time of a piece of work."""
    start = time.process_time()
    work()
    return time.process_time() - start


def main() -> None:
    """Measure both ways, check that they end in the same bits, and record the times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=10, help="Epochs of the recipe; the preset has 10.")
    parser.add_argument("--json", type=Path, default=Path("results/shared-training.json"))
    arguments = parser.parse_args()
    specs = [
        resolve("mnist", "pair:0.45", method, preset="fast", epochs=arguments.epochs, options=options)
        for method, options in METHODS.items()
    ]
    data = load_named("mnist", arguments.data_dir, accelerated=specs[0].accelerated)

    def train(spec: RunSpec, out: Path, share: bool) -> None:
        run.run(run.set_up(spec, dataset=data), out, share=share)

    with tempfile.TemporaryDirectory() as folder:
        alone, grid = Path(folder, "alone"), Path(folder, "grid")
        saved = epochs_saved([read_status(spec, grid) for spec in specs])
        train(specs[-1], Path(folder, "first"), False)  # compiles what is compiled on first use
        separate = sum(cpu_seconds(lambda spec=spec: train(spec, alone, False)) for spec in specs)
        shared = sum(cpu_seconds(lambda spec=spec: train(spec, grid, True)) for spec in specs)
        for spec in specs:
            one, two = (spec.folder(out) / "model.safetensors" for out in (alone, grid))
            if one.read_bytes() != two.read_bytes():
                raise SystemExit(f"{spec.method} ends with other weights in the grid.")
    epochs = sum(plan(spec).epochs for spec in specs)
    found = {
        "epochs of the recipe": arguments.epochs,
        "epochs of separate runs": epochs,
        "epochs of the grid": epochs - saved,
        "CPU seconds of separate runs": separate,
        "CPU seconds of the grid": shared,
        "time of the grid relative to separate runs": shared / separate,
    }
    write_json(arguments.json, found)
    for name, value in found.items():
        print(f"{name}: {value:,.3g}" if isinstance(value, float) else f"{name}: {value}")


if __name__ == "__main__":
    main()
