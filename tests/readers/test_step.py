"""Step 3.5: heads of windows, gates, and lists that go on behind the last layer, as its published file has them."""

from __future__ import annotations

import pytest

from meshwright.errors import InputError
from meshwright.readers.hf_config import model_from_config

CONFIG: dict[str, object] = {
    "architectures": ["Step3p5ForCausalLM"], "vocab_size": 1000, "hidden_size": 512, "intermediate_size": 1024,
    "num_hidden_layers": 4, "num_nextn_predict_layers": 2, "num_attention_heads": 4, "num_attention_groups": 2, "head_dim": 64,
    "use_head_wise_attn_gate": True, "sliding_window": 128, "moe_num_experts": 8, "moe_top_k": 2, "moe_intermediate_size": 256,
    "share_expert_dim": 128, "moe_layers_enum": "2, 3", "attention_other_setting": {"num_attention_heads": 6},
    "layer_types": ["full_attention", "sliding_attention", "sliding_attention", "full_attention", "sliding_attention"] * 2,
}


def test_windows_have_heads_of_their_own_and_dense_layers_stand_first() -> None:
    model = model_from_config(CONFIG | {"layer_types": CONFIG["layer_types"][:6]}, where="step")  # type: ignore[index]
    kinds = [model.kinds[index] for index in model.pattern]
    assert [(kind.attention.num_heads, kind.attention.window_tokens) for kind in kinds if kind.attention] == [
        (4, None), (6, 128), (6, 128), (4, None),
    ]
    assert [kind.experts is not None for kind in kinds] == [False, False, True, True]
    assert {kind.attention.gate for kind in kinds if kind.attention} == {"head"}
    assert model.num_mtp_layers == 2


@pytest.mark.parametrize(("change", "words"), [
    ({"layer_types": ["full_attention"] * 5}, "has 5 entries for 6 layers"),
    ({"moe_layers_enum": "2;3"}, "is not a list of whole numbers"),
])
def test_lists_of_another_length_are_refused(change: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        model_from_config(CONFIG | change, where="step")
