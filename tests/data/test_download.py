import hashlib
from pathlib import Path

import pooch
import pytest

from volmin.data import DataError, load_dataset
from volmin.data.sources.download import _Bar, download


@pytest.fixture
def no_network(monkeypatch, tmp_path):
    """Downloads fail; gives the list of requested files."""
    requested = []

    def refuse(url, known_hash, **settings):
        requested.append((url, known_hash))
        raise OSError("no network")

    monkeypatch.setattr(pooch, "retrieve", refuse)
    monkeypatch.setattr(pooch, "os_cache", lambda name: tmp_path)
    return requested


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist", "cifar10", "cifar100"])
def test_failed_download_suggests_a_data_directory(name, no_network):
    with pytest.raises(DataError, match=r"could not be downloaded.*--data-dir"):
        load_dataset(name)
    ((url, digest),) = no_network
    assert url.endswith(".gz")
    assert len(digest) in (len("md5:") + 32, len("sha256:") + 64)


@pytest.mark.parametrize("name", ["digits", "mnist", "fashion_mnist", "cifar10", "cifar100"])
def test_nothing_is_downloaded_if_a_data_directory_is_given(name, no_network, tmp_path):
    if name == "digits":
        load_dataset(name)
    else:
        with pytest.raises(DataError, match="No .* files in"):
            load_dataset(name, tmp_path)
    assert no_network == []


CONTENT = b"<html>moved</html>"


@pytest.fixture
def server(monkeypatch):
    """Downloads give ``CONTENT``, and report progress as pooch does."""

    class Server:
        def __init__(self, progressbar):
            self.progressbar = progressbar

        def __call__(self, url, output_file, pooch):
            Path(output_file).write_bytes(CONTENT)
            if self.progressbar:
                self.progressbar.total = 18
                self.progressbar.update(1024)
                self.progressbar.reset()
                self.progressbar.update(18)
                self.progressbar.close()

    monkeypatch.setattr(pooch, "HTTPDownloader", Server)


def test_content_with_a_wrong_checksum_is_refused_and_deleted(server, tmp_path):
    with pytest.raises(DataError, match="could not be downloaded"):
        download("https://example.org/data.gz", "md5:" + 32 * "0", tmp_path)
    assert not list(tmp_path.iterdir())
    digest = f"md5:{hashlib.md5(CONTENT).hexdigest()}"
    assert download("https://example.org/data.gz", digest, tmp_path).read_bytes() == CONTENT


def test_progress_of_a_download_is_reported_in_bytes(server, tmp_path):
    reports = []
    digest = f"md5:{hashlib.md5(CONTENT).hexdigest()}"
    download("https://example.org/data.gz", digest, tmp_path, lambda *report: reports.append(report))
    assert reports == [("downloading data.gz (bytes)", done, 18) for done in (0, 18, 18)]
    download("https://example.org/data.gz", digest, tmp_path, lambda *report: pytest.fail("downloaded twice"))


def test_progress_of_unknown_size_is_not_reported(tmp_path):
    bar = _Bar("data.gz", lambda *report: pytest.fail("a total of zero was reported"))
    bar.total = 0
    bar.update(1024)
