import importlib.util
from importlib.metadata import version
from typing import Any

import pytest

from volmin import accelerated, networks
from volmin.exceptions import InputError


@pytest.fixture
def without_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_spec(name: str, *args: Any) -> Any:
        return None if name == "numba" else importlib.util.find_spec(name, *args)

    monkeypatch.setattr(accelerated, "find_spec", find_spec)


def test_accelerated_networks_are_networks():
    assert set(accelerated.NETWORKS) <= set(networks.names())


def test_availability_and_versions_with_numba():
    pytest.importorskip("numba")
    assert accelerated.is_available("lenet5")
    assert not accelerated.is_available("resnet18")
    assert not accelerated.is_available("unknown")
    assert accelerated.versions() == {"numba": version("numba")}


@pytest.mark.usefixtures("without_numba")
def test_availability_and_versions_without_numba():
    assert not accelerated.is_available("lenet5")
    assert accelerated.versions() == {}
    with pytest.raises(InputError, match=r"require numba: install it with pip install 'volmin\[speed\]'"):
        accelerated.build("lenet5", (1, 28, 28), 10)


def test_build_rejects_networks_and_inputs_without_an_accelerated_version():
    pytest.importorskip("numba")
    with pytest.raises(InputError, match="mlp has no accelerated version; these have one: lenet5"):
        accelerated.build("mlp", (12,), 3)
    with pytest.raises(InputError, match="28 x 28 pixels"):
        accelerated.build("lenet5", (3, 32, 32), 10)
