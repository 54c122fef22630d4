"""Every option of every verb that works on a case. One request file serves them all, so the tables stand together."""

from __future__ import annotations

from meshwright.api import numbers
from meshwright.api.fields import Field, one_of
from meshwright.api.pins import pin
from meshwright.domain.launch import launch_words, parse_launch

DEFAULTS: dict[str, str] = {
    "task": "pretrain", "precision": "bf16", "optimizer": "adamw",
    "flops_convention": "causal", "calibration": "shipped",
}
_CLUSTER, _BATCH, _NUMBERS, _TRAINER = "Cluster", "Batch", "Numbers (never changed)", "Trainer"
_SEARCH, _RUN, _OUTPUT = "Search", "The whole run", "Output"


def _launch(words: str) -> str:
    """Settings of a launch in their one spelling."""
    return launch_words(parse_launch(words))


CASE = (
    Field(name="model", kind="argument", metavar="MODEL",
          help="A catalogue name (meshwright catalog models), a config.json of Hugging Face, a model YAML, or a saved plan."),
    Field(name="layers", parse=numbers.count, metavar="N", panel="Model", help="Shrink the model to N layers."),
    Field(name="request", metavar="FILE", panel="Model", in_file=False,
          help="YAML with any of these options as keys, or a saved plan.yaml; flags win."),
    Field(name="cluster", metavar="NAME|FILE", panel=_CLUSTER, help="A cluster of the catalogue, or a cluster YAML."),
    Field(name="device", metavar="NAME", panel=_CLUSTER, help="A device in the node that it usually comes in."),
    Field(name="nodes", parse=numbers.count, metavar="N", panel=_CLUSTER, help="Number of nodes."),
    Field(name="devices", parse=numbers.count, metavar="N", panel=_CLUSTER,
          help="Number of devices, instead of nodes."),
    Field(name="devices_per_node", parse=numbers.count, metavar="N", panel=_CLUSTER,
          help="Devices of one node, where it is not the usual number."),
    Field(name="global_batch", parse=numbers.count, metavar="N", panel=_BATCH,
          help="Sequences per optimizer step; with --lengths samples of the file."),
    Field(name="sequence", parse=numbers.sequence, metavar="TOKENS", panel=_BATCH,
          help="Tokens of a sequence; 128k is 131072 and 1M is 1048576. With --lengths the longest sample [default: the file's]."),
    Field(name="lengths", metavar="FILE", panel=_BATCH,
          help="Lengths of samples (text, CSV or JSON lines), which are packed: attention stays inside a sample."),
    Field(name="max_tokens", parse=numbers.sequence, metavar="TOKENS", panel=_BATCH,
          help="The most tokens of a pack of samples [default: plan tries some, elsewhere the longest sample]."),
    Field(name="packs", parse=numbers.count, metavar="N", panel=_BATCH,
          help="Packs of an optimizer step, which replicas share [default: as many as the samples need, rounded up a little]."),
    Field(name="split_long", kind="flag", panel=_BATCH, help="Cut samples longer than --sequence, instead of refusing them."),
    Field(name="task", parse=one_of("pretrain", "sft", "lora"), metavar="pretrain|sft|lora", panel=_BATCH,
          help="What is trained [default: pretrain]."),
    Field(name="precision", metavar="NAME", panel=_NUMBERS,
          help="bf16, fp16, fp8-delayed, fp8-cs, fp8-mx, fp8-blockwise or nvfp4 [default: bf16]."),
    Field(name="optimizer", metavar="NAME", panel=_NUMBERS, help="The optimizer [default: adamw]."),
    Field(name="gradient_dtype", parse=one_of("fp32", "bf16"), metavar="fp32|bf16", panel=_NUMBERS,
          help="What gradients are accumulated in [default: the implementation's]."),
    Field(name="framework", metavar="NAME", panel=_TRAINER,
          help="Only what this framework can run [default: megatron]."),
    Field(name="implementation", metavar="NAME", panel=_TRAINER,
          help="Kernels and buffers as this implementation has them [default: the framework's]."),
    Field(name="launch", parse=_launch, metavar="WORDS", panel=_TRAINER,
          help='How the run is launched: "graphs=none deterministic=on attention=auto host=plain routing=natural optimizer=plain '
               'offload_modules=expert_fc1" '
               "[default: as the files say, else as performance recipes do]."),
    Field(name="calibration", metavar="none|NAME|FILE", panel=_TRAINER,
          help="Constants with their error: none (priors), shipped, or a file of calibrate [default: shipped]."),
    Field(name="flops_convention", parse=one_of("causal", "full", "megatron"), metavar="causal|full|megatron",
          panel=_TRAINER, help="What counts as model FLOPs in MFU [default: causal]."),
    Field(name="max_memory_ratio", parse=numbers.share, metavar="RATIO", panel=_TRAINER,
          help="Share of a device's memory that the trainer may use, 0.9 or 90% [default: 0.9]."),
    Field(name="reserve_memory_ratio", parse=numbers.reserve, metavar="RATIO", panel=_TRAINER,
          help="Share of a device's memory kept for another program beside the trainer [default: 0]."),
)
LAYOUT = Field(name="layout", parse=numbers.words, metavar="LABEL", panel="Layout", help='A layout, as in "tp8 pp4 mb1 sp zero1".')
SPARE_NODES = Field(name="spare_nodes", parse=numbers.count_or_none, metavar="N", panel=_SEARCH,
                    help="Up to so many nodes may stay idle where that is better [default: 0].")
JSON = Field(name="json", kind="flag", panel=_OUTPUT, in_file=False, help="One JSON document instead of tables.")
HTML = Field(name="html", metavar="FILE.html", panel=_OUTPUT, in_file=False,
             help="Write the answer as a page with its charts: one file that works offline and can be mailed.")
FORCE = Field(name="force", kind="flag", panel=_OUTPUT, in_file=False, help="Replace the file of --html where it exists.")
PLAN = (
    Field(name="top", parse=numbers.count, metavar="N", panel=_SEARCH, help="How many plans to show [default: 10]."),
    Field(name="objective", parse=one_of("step-time", "memory", "throughput-per-device"), panel=_SEARCH,
          metavar="step-time|memory|throughput-per-device", help="What to rank by [default: step-time]."),
    Field(name="pin", parse=pin, kind="many", metavar="KNOB=VALUE", panel=_SEARCH,
          help="Fix a knob, repeatable: tp cp pp vp ep etp dp mb zero shard recompute schedule sp offload cp_kind attention "
               "compile overlap."),
    Field(name="risk", parse=one_of("exact", "equivalent", "approximate"), metavar="exact|equivalent|approximate",
          panel=_SEARCH, help="How far a plan may change the arithmetic [default: exact]."),
    SPARE_NODES,
    Field(name="weak", kind="flag", panel=_SEARCH, help="Linearity against a baseline with its share of the global batch."),
    Field(name="no_balance", kind="flag", panel=_SEARCH,
          help="Leave the stages of the best plans as they are: no layers moved, no recomputation by stage."),
    Field(name="compare", parse=numbers.words, metavar="LABEL", panel=_SEARCH,
          help="Why not this layout? Its place, and its terms beside the best."),
    Field(name="guided", kind="flag", panel=_SEARCH,
          help="Also go the way of the ChatLearn guide, each step beside the best plan."),
    Field(name="tokens", parse=numbers.tokens, metavar="N", panel=_RUN,
          help="Tokens to train on, as 15e12 or 15T: days, device-hours, cost, energy."),
    Field(name="deadline_days", parse=numbers.positive, metavar="DAYS", panel=_RUN, help="When the run must be done."),
    Field(name="price_per_device_hour", parse=numbers.positive, metavar="PRICE", panel=_RUN,
          help="Price of a device-hour."),
    Field(name="power_w", parse=numbers.positive, metavar="W", panel=_RUN,
          help="Power of a device [default: the device's]."),
    Field(name="min_devices", kind="flag", panel=_RUN,
          help="Also find the smallest number of devices that fits, and that meets the deadline."),
    Field(name="save", metavar="DIR", panel=_OUTPUT, in_file=False, help="Write plan.yaml and the launch files there."),
    HTML,
    Field(name="force", kind="flag", panel=_OUTPUT, in_file=False,
          help="Overwrite files that --save finds changed; replace the file of --html."),
)
"""What ``plan`` adds: the search, the whole run, the output."""


def known_keys() -> frozenset[str]:
    """What a request file may hold."""
    return frozenset(field.name for field in (*CASE, *PLAN, LAYOUT) if field.in_file)
