"""The digest of a network's file, and files that are compressed."""

import gzip
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from relucert.errors import LoadError
from relucert.inputs.loading import load
from relucert.inputs.loading.paths import file_digest
from relucert.inputs.loading.runtime import Origin
from relucert.network.fingerprint import fingerprint
from tests.nets import mlp
from tests.verification.networks import as_onnx


def _saved(path: Path, weights: float, apart: bool) -> str:
    numbers = numpy_helper.from_array(np.full((2, 3), weights, dtype=np.float32), "w")
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, size]) for name, size in (("x", 2), ("y", 3))]
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", ends[:1], ends[1:], [numbers])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save_model(model, path, save_as_external_data=apart, location="weights.data", size_threshold=0)
    return file_digest(path)


def test_weights_in_another_file_count(tmp_path: Path) -> None:
    path = tmp_path / "a.onnx"
    first = _saved(path, 1.0, apart=True)
    assert file_digest(path) == first
    content = path.read_bytes()
    (tmp_path / "weights.data").unlink()
    second = _saved(path, 2.0, apart=True)
    assert path.read_bytes() == content  # the model itself is the same
    assert first != second
    assert _saved(path, 1.0, apart=False) != _saved(path, 2.0, apart=False)


@pytest.mark.parametrize("apart", [False, True])
def test_a_compressed_file_is_the_same_network(tmp_path: Path, apart: bool) -> None:
    path, packed = tmp_path / "a.onnx", tmp_path / "a.onnx.gz"
    digest = _saved(path, 1.0, apart)
    plain = load(path)
    packed.write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    with pytest.raises(LoadError, match=r"a\.onnx\.gz is there"):
        load(path)
    assert file_digest(packed) == digest
    loaded = load(packed)
    assert (loaded.name, fingerprint(loaded)) == (plain.name, fingerprint(plain))
    assert "onnxruntime" in Origin.of(packed, loaded).runtime(loaded).by
    (tmp_path / "b.onnx.gz").write_bytes(packed.read_bytes()[:-9])
    with pytest.raises(LoadError, match="can't be unpacked"):
        load(tmp_path / "b.onnx.gz")


def test_what_is_no_model_has_one_too(tmp_path: Path) -> None:
    path = tmp_path / "a.onnx"
    path.write_bytes(b"a location of nothing")
    assert file_digest(path) == file_digest(path)


def test_a_runtime_is_that_of_the_file_that_was_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever another process has its current folder, and whatever has taken the file's place."""
    network = mlp(2, 4, 2)
    as_onnx(network, tmp_path / "network.onnx")
    monkeypatch.chdir(tmp_path)
    origin = Origin.of("network.onnx", network)
    monkeypatch.chdir("/")
    assert "onnxruntime" in origin.runtime(network).by
    as_onnx(mlp(2, 4, 2, seed=1), tmp_path / "network.onnx")
    with pytest.raises(LoadError, match="no longer, the file"):
        origin.runtime(network)
