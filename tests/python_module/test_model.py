"""`Model`: the compatibility hash is vLLM's, the fingerprint stands for what it leaves out."""

import hashlib
import json

import pytest

from chiasm._native import ConfigError
from tests.python_module.instances import model


def test_the_compatibility_hash_is_that_of_vllm() -> None:
    found = model(model='画/\u007f"m', row_elements=3584)
    facts = ["0.33.0", '画/\u007f"m', "torch.bfloat16", 7168]
    text = json.dumps(facts, separators=(",", ":"))
    assert found.block_size_bytes == 7168
    assert found.compat_hash == hashlib.sha256(text.encode()).hexdigest()


def test_a_fingerprint_is_equal_exactly_where_all_parts_are() -> None:
    parts = {"revision": "abc", "quantization": None}
    found = model(fingerprint=parts).fingerprint
    assert found is not None
    assert len(found) == 64
    assert found == model(fingerprint=dict(reversed(parts.items()))).fingerprint
    assert model().fingerprint is None
    for other in (
        {"revision": "abd", "quantization": None},
        {"revision": "abc", "quantization": "None"},
        {"revision": "abc"},
        {},
    ):
        assert model(fingerprint=other).fingerprint != found


@pytest.mark.parametrize(
    "wrong", [{"dtype": "torch.quint8"}, {"row_elements": 0}, {"row_elements": 2**63}]
)
def test_what_is_no_model_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        model(**wrong)
