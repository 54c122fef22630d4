"""How large a model may be: a layer's parameters from above, by hand."""

import pytest

from meshwright.catalog import load_model
from meshwright.perf.parameters import layer_parameters
from meshwright.readers.limits import _size


@pytest.mark.parametrize(("name", "size"), [
    ("llama3-8b", 4096 * (32 * 128 + 2 * 8 * 128 + 32 * 128 + 3 * 14336)),
    # hidden and both ranks of the latents, times heads of 192 and 128, the ranks again, and the dense block
    ("deepseek-v3", (7168 + 1536 + 512) * (128 * 192 + 128 * 192 + 128 * 128 + 128 * 128 + 1536 + 512 + 3 * 18432)),
])
def test_a_layer_is_counted_from_above(name, size):
    model = load_model(name)
    assert _size(model, model.kinds[model.pattern[0]]) == size
    for kind in model.kinds:
        counts = layer_parameters(model, kind)
        assert _size(model, kind) >= 0.99 * (counts.sharded + counts.replicated + counts.routed)
