"""The wheel and the source distribution are complete: built, installed into a new environment, and used from there."""

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import volmin

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A wheel that was built from the source distribution, and the latter."""
    pytest.importorskip("build")
    pytest.importorskip("hatchling")
    out = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "build", "--no-isolation", "--outdir", out, ROOT], check=True, timeout=300)
    return next(out.glob("*.whl")), next(out.glob("*.tar.gz"))


def test_distributions_have_the_version_and_the_files(built):
    wheel, source = built
    assert wheel.name == f"volmin-{volmin.__version__}-py3-none-any.whl"
    assert source.name == f"volmin-{volmin.__version__}.tar.gz"
    package = ROOT / "src"
    wanted = {
        path.relative_to(package).as_posix()
        for path in (package / "volmin").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert wanted <= set(zipfile.ZipFile(wheel).namelist())
    with tarfile.open(source) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    assert {"README.md", "CHANGELOG.md", "LICENSE", "pyproject.toml", "src/volmin/py.typed"} <= names
    assert not [name for name in names if name.startswith((".", "site/", "runs/")) and name != ".gitignore"]


def test_wheel_works_in_a_new_environment(built, tmp_path):
    wheel, _ = built
    environment = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    # The dependencies of this environment, without its editable installation of the package.
    site = next((environment / "lib").glob("python*/site-packages"))
    (site / "dependencies.pth").write_text(
        "\n".join(path for path in sys.path if path.endswith("site-packages")) + "\n"
    )
    install = [
        environment / "bin" / "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--ignore-installed",
        wheel,
    ]
    subprocess.run(install, check=True)
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run(*command):
        done = subprocess.run(command, cwd=tmp_path, env=clean, check=True, capture_output=True, text=True, timeout=300)
        return done.stdout

    where = run(environment / "bin" / "python", "-c", "import volmin; print(volmin.__file__)")
    assert Path(where.strip()).is_relative_to(site)
    assert volmin.__version__ in run(environment / "bin" / "volmin", "--version")
    lines = ["a,b,label", *(f"{k % 7},{k % 2 * 3 + k % 5 / 5},{'yes' if k % 2 else 'no'}" for k in range(200))]
    (tmp_path / "table.csv").write_text("\n".join(lines) + "\n")
    run(environment / "bin" / "volmin", "audit", "table.csv", "--label", "label", "--model", "logistic")
    assert (tmp_path / "audit" / "report.html").stat().st_size > 10_000  # with its templates and scripts
