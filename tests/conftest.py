import os
import shutil
import warnings
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import settings
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import volmin
from volmin import cli, noise
from volmin.data import load_dataset
from volmin.data.splits import noisy_split

os.environ["LOKY_MAX_CPU_COUNT"] = "1"  # audits fit their models in this process, since the tests run in parallel
torch.set_num_threads(1)  # small networks gain nothing from threads, and the tests run in parallel
settings.register_profile("no_deadline", deadline=None)  # a busy machine must not fail a test
settings.load_profile("no_deadline")


class Done(NamedTuple):
    """Exit code and output of a command."""

    code: int
    out: str
    err: str


@pytest.fixture
def command(monkeypatch, capsys):
    """Runs a command in this process, because importing torch in a new one takes longer than most commands."""
    monkeypatch.setattr("warnings.formatwarning", warnings.formatwarning)  # undo what the command line sets

    def run(*arguments):
        monkeypatch.setattr("sys.argv", ["volmin", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            cli.main()
        assert isinstance(end.value.code, int)
        return Done(end.value.code, *capsys.readouterr())

    return run


@pytest.fixture(scope="session")
def digits():
    return load_dataset("digits")


@pytest.fixture(scope="session")
def noisy_digits(digits):
    """Digits with 35 % pair noise, and the matrix of that noise."""
    T = noise.pair(10, 0.35)
    return noisy_split(digits.train, T, seed=1), T


@pytest.fixture(scope="session")
def make_clothing1m():
    """A function that writes a miniature Clothing1M to a folder."""
    return _make_clothing1m


def _make_clothing1m(root, annotations=False):
    """Uniform images whose colour encodes the class, with unusual file names, two broken images and one missing."""
    train, test_part = 200, 42
    generator = np.random.default_rng(0)
    clean = np.concatenate([np.repeat(np.arange(14), 10), np.zeros(train - 140, int), np.repeat(np.arange(14), 3)])
    noisy = noise.corrupt(clean, noise.pair(14, 0.2), 0)
    keys = [
        f"images/{i % 10}/{i % 100:02d}/{1000 + i},{generator.integers(10**9)}.jpg" for i in range(train + test_part)
    ]
    keys[5] = "images/0/05/a b,5.jpg"
    for key, label in zip(keys, clean, strict=True):
        (root / key).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (20, 16), (15 * label + 20, 128, 235 - 15 * label)).save(root / key)
    (root / keys[150]).write_bytes(b"broken")
    (root / keys[151]).unlink()
    (root / keys[train + 1]).write_bytes((root / keys[train + 1]).read_bytes()[:300])
    lists = root / "annotations" if annotations else root
    lists.mkdir(exist_ok=True)
    pairs = [f"{key} {label}" for key, label in zip(keys, noisy, strict=True)]
    (lists / "noisy_label_kv.txt").write_text("\n".join(pairs[::-1]) + "\n")
    (lists / "noisy_train_key_list.txt").write_text("\n".join(keys[:train]))
    test = [f"{key} {label}" for key, label in zip(keys[train:], clean[train:], strict=True)]
    (lists / "clean_label_kv.txt").write_text("\n".join(test))
    (lists / "clean_test_key_list.txt").write_text("\n".join(keys[train:]))
    return keys, noisy, clean


class MislabelledDigits:
    """All 1,797 digits with 30 % asymmetric noise, and out-of-fold probabilities of logistic regression."""

    def __init__(self, seed):
        self.x, self.clean = load_digits(return_X_y=True)
        self.T = noise.asymmetric(10, 0.3, seed)
        self.labels = noise.corrupt(self.clean, self.T, seed)
        self.wrong = self.labels != self.clean
        plain = make_pipeline(StandardScaler(), LogisticRegression(C=0.01))
        folds = StratifiedKFold(3, shuffle=True, random_state=seed)
        self.probs = cross_val_predict(plain, self.x, self.labels, cv=folds, method="predict_proba")

    def pixels(self):
        return (self.x.reshape(-1, 1, 8, 8) * 15.9).astype(np.uint8)


@pytest.fixture(scope="session")
def mislabelled():
    return MislabelledDigits(seed=0)


@pytest.fixture(scope="session")
def audited(mislabelled):
    return volmin.audit(mislabelled.labels, probs=mislabelled.probs, random_state=0)


@pytest.fixture
def exact():
    """Three classes that are well separated in most rows: clean posteriors, T, true and noisy labels."""
    generator = np.random.default_rng(0)
    T = np.array([[0.8, 0.1, 0.0], [0.2, 0.6, 0.1], [0.0, 0.3, 0.9]])
    h = generator.dirichlet(np.full(3, 0.1), 1500)
    clean = (generator.random((1500, 1)) > h.cumsum(axis=1)[:, :-1]).sum(axis=1)
    return h, T, clean, noise.corrupt(clean, T, seed=1)


@pytest.fixture
def batch() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Logits, a random T that is far from symmetric, and labels of five classes."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(40, 5, generator=generator, dtype=torch.double).requires_grad_()
    T = torch.tensor(noise.pair(5, 0.3)) * 0.9 + 0.1 * torch.rand(5, 5, generator=generator).double()
    return logits, T / T.sum(0), torch.arange(40) % 5


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="module")
def browser():
    """Chromium; closed with the module, since an open one keeps an event loop running."""
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine")
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
        )
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def violations():
    """A function that lists what axe finds on a page: the rule, and the first element that breaks it."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()

    def of(page, rules=("wcag2a", "wcag2aa", "wcag21aa", "best-practice")):
        found = axe.run(page, options={"runOnly": list(rules)}).response["violations"]
        return [(broken["id"], broken["nodes"][0]["html"][:160]) for broken in found]

    return of
