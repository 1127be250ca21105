import hashlib

import pooch
import pytest

from volmin.data import DataError, load_dataset
from volmin.data.sources.download import download


@pytest.fixture
def no_network(monkeypatch, tmp_path):
    """Every fetch fails, after noting what was asked for."""
    asked = []

    def refuse(url, known_hash, **settings):
        asked.append((url, known_hash))
        raise OSError("no network")

    monkeypatch.setattr(pooch, "retrieve", refuse)
    monkeypatch.setattr(pooch, "os_cache", lambda name: tmp_path)
    return asked


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist", "cifar10", "cifar100"])
def test_a_failed_download_says_what_to_do(name, no_network):
    with pytest.raises(DataError, match=r"could not be downloaded.*--data-dir"):
        load_dataset(name)
    ((url, digest),) = no_network
    assert url.endswith(".gz")
    assert len(digest) in (len("md5:") + 32, len("sha256:") + 64)


@pytest.mark.parametrize("name", ["digits", "mnist", "fashion_mnist", "cifar10", "cifar100"])
def test_a_data_directory_is_all_that_is_looked_at(name, no_network, tmp_path):
    if name == "digits":
        load_dataset(name)
    else:
        with pytest.raises(DataError, match="No .* files in"):
            load_dataset(name, tmp_path)
    assert no_network == []


def test_a_file_of_another_content_is_refused_and_not_kept(monkeypatch, tmp_path):
    class Server(pooch.HTTPDownloader):
        def __call__(self, url, output_file, pooch):
            with open(output_file, "wb") as file:  # noqa: PTH123
                file.write(b"<html>moved</html>")
            self.progressbar.total = 18
            self.progressbar.update(1024)
            self.progressbar.reset()
            self.progressbar.update(18)
            self.progressbar.close()

    monkeypatch.setattr(pooch, "HTTPDownloader", Server)
    with pytest.raises(DataError, match="could not be downloaded"):
        download("https://example.org/data.gz", "md5:" + 32 * "0", tmp_path)
    assert not list(tmp_path.iterdir())
    content = hashlib.md5(b"<html>moved</html>").hexdigest()
    assert download("https://example.org/data.gz", f"md5:{content}", tmp_path).read_bytes() == b"<html>moved</html>"
