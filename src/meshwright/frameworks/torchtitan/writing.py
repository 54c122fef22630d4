"""torchtitan's files: TOML and a launch script (0.2), or a launch script whose flags say everything (0.3 and main)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tomlkit

from meshwright.documents.quoting import Shell, command, python
from meshwright.frameworks.base import File, Options
from meshwright.frameworks.manual import (
    TORCHRUN,
    Blank,
    Launch,
    Manual,
    Switch,
    Variable,
    launch_script,
    readme,
    start_commands,
    template,
    train_steps,
    unsaved,
)
from meshwright.frameworks.torchtitan.layout_keys import decide, goes_compiled
from meshwright.frameworks.torchtitan.models import OWN_MODULE, Flavour, configurations, flavour_of
from meshwright.frameworks.torchtitan.script import CHECKPOINTING, flag_words

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout

_FULL = {"0.2": "0.2.2", "0.3": "0.3.0", "main": "main (b5bcd76)"}
_TEST_ASSETS = "./tests/assets/tokenizer"
"""The tokenizer in torchtitan's own checkout, and its default: enough to start, whatever the model, whose vocabulary is its own."""


def write(case: Case, layout: Layout, release: str, options: Options) -> tuple[File, ...]:
    """``config.toml`` (0.2), ``launch.sh``, ``probe.sh``, ``README.md``; a module for a flavour without a configuration."""
    flavour = flavour_of(case.model, release)
    assert flavour is not None, "limits refuse other models"
    settings = _settings(case, layout, release, options, flavour)
    manual = _manual(case, layout, release, options, flavour)
    if release == "0.2":
        files: tuple[File, ...] = (File(path="config.toml", text=_toml(settings)),)
        arguments = [
            '--job.config_file "$HERE/config.toml"',
            '--model.hf_assets_path "$HF_ASSETS_PATH"',
            '--training.dataset "$DATASET"',
        ]
    else:
        files = () if _registered(case, flavour, release) else (File(path=f"{OWN_MODULE}.py", text=_own(flavour)),)
        arguments = [*_blank_arguments(case, release), *_arguments(settings)]
    path = "" if _registered(case, flavour, release) else 'env PYTHONPATH="$HERE${PYTHONPATH:+:$PYTHONPATH}" '
    launch = Launch(checkout="TORCHTITAN_PATH", command=(path + TORCHRUN[0], *TORCHRUN[1:], "-m torchtitan.train", *arguments))
    probe = _probe(case, layout, release, options, [f"{path}python3 -m torchtitan.train", *_probed(arguments, release)])
    return (*files, launch_script(case, layout, options, manual, launch), probe, readme(case, layout, options, manual))


def _registered(case: Case, flavour: Flavour, release: str) -> str:
    """The registered configuration that is the case, or nothing: those with other number formats are not."""
    if release == "0.2":
        return flavour.name
    if case.training.task == "sft":
        return next(name for name, each in configurations(release).items() if each.task == "sft" and each.flavour == flavour.name)
    return flavour.config


def _settings(case: Case, layout: Layout, release: str, options: Options, flavour: Flavour) -> dict[str, object]:
    """Key -> value of everything that is written."""
    steps, tokens, batch = train_steps(case, options), case.batch.sequence_tokens, case.batch.global_batch_sequences
    compiled = goes_compiled(case, layout)
    common: dict[str, object] = {
        "optimizer.lr": 3e-4, "lr_scheduler.warmup_steps": max(1, min(steps // 10, 2000)),
        "training.steps": steps, "compile.enable": compiled, **({"compile.components": ["model", "loss"]} if compiled else {}),
        "checkpoint.enable": False, "metrics.log_freq": 1,
    }
    if release == "main":
        common |= {"training.max_context_length": tokens, "training.num_tokens_per_train_step": batch * tokens}
    else:
        common |= {"training.seq_len": tokens, "training.global_batch_size": batch}
    if release == "0.2":
        common |= {"model.name": flavour.module, "model.flavor": flavour.name, "optimizer.name": "AdamW", **_quantised(case)}
    else:
        registered = _registered(case, flavour, release)
        common = {"module": flavour.module if registered else OWN_MODULE, "config": registered or flavour.function, **common}
        del common["optimizer.lr"]  # its place differs from configuration to configuration
    return common | dict(decide(case, layout, release)) | dict(options.launch.keys)


def _quantised(case: Case) -> dict[str, object]:
    """FP8 as torchao has it: tensorwise scales with FP8 gathers, or blocks of 32."""
    match case.training.precision.name:
        case "fp8-torchao":
            place = "quantize.linear.float8."
            return {"model.converters": ["quantize.linear.float8"], place + "filter_fqns": ["output"],
                    place + "enable_fsdp_float8_all_gather": True,
                    place + "precompute_float8_dynamic_scale_for_fsdp": True}
        case "fp8-mx":
            return {"model.converters": ["quantize.linear.mx"], "quantize.linear.mx.recipe_name": "mxfp8_cublas"}
    return {}


def _toml(settings: dict[str, object]) -> str:
    """Settings as sections."""
    document: dict[str, object] = {}
    for key in sorted(settings, key=lambda key: key.split(".")[:-1]):
        *sections, name = key.split(".")
        section = document
        for each in sections:
            below = section.setdefault(each, {})
            assert isinstance(below, dict), f"{each} is a section"
            section = below
        section[name] = settings[key]
    return tomlkit.dumps(document)


def _arguments(settings: dict[str, object]) -> list[str]:
    """Settings as lines of flags, the sub-command behind them."""
    lines = [command(*flag_words(key, value)) for key, value in settings.items() if key != CHECKPOINTING]
    return [*lines, f"activation-checkpoint:{settings[CHECKPOINTING]}"]


def _blank_arguments(case: Case, release: str) -> list[str]:
    """What is to be filled in, from 0.3 on."""
    dataset = ['--dataloader.dataset "$DATASET"'] if _names_data(case, release) else []
    return ['--hf-assets-path "$HF_ASSETS_PATH"', *dataset]


def _names_data(case: Case, release: str) -> bool:
    """Whether a key names the data: main and tuning take those of the configuration."""
    return release == "0.2" or (case.training.task == "pretrain" and release == "0.3")


def _own(flavour: Flavour) -> str:
    """A configuration for a flavour that none is registered for: another of its module with this model."""
    return f'''"""{flavour.module} {flavour.name} for torchtitan, whose registry has no such configuration in these formats."""

from torchtitan.models.{flavour.module} import model_registry
from torchtitan.models.{flavour.module}.config_registry import {flavour.base}


def {flavour.function}():
    config = {flavour.base}()
    config.model_spec = model_registry({python(flavour.name)})
    return config
'''


def _probed(arguments: list[str], release: str) -> list[str]:
    """The arguments of one step on one device with a fake process group; flags stand before the sub-command."""
    fake = ["--comm.mode fake_backend", "--training.steps 1"]
    if release == "0.2":
        return [*arguments, *fake]
    kept = [each for each in arguments if not each.startswith("--training.steps")]
    return [*kept[:-1], *fake, kept[-1]]


def _probe(case: Case, layout: Layout, release: str, options: Options, words: list[str]) -> File:
    """One rank of the whole job on one device."""
    stage = _probe_stage(layout, release, options)
    rank = stage * (layout.world // layout.pipeline_parallel)
    blanks = (Blank(name="HF_ASSETS_PATH", default=_TEST_ASSETS),
              *((Blank(name="DATASET", default="c4_test"),) if _names_data(case, release) else ()))
    values = {"case": case, "layout": layout, "stage": stage, "rank": rank, "blanks": blanks, "command": tuple(words)}
    return File(path="probe.sh", text=template("torchtitan_probe.sh.j2").render(values), executable=True)


def _probe_stage(layout: Layout, release: str, options: Options) -> int:
    """The fullest stage, where the release can pretend to be another rank than the first."""
    return options.estimate.peak_stage if options.estimate is not None and release != "0.2" else 0


def _manual(case: Case, layout: Layout, release: str, options: Options, flavour: Flavour) -> Manual:
    """What the README and the launch script say."""
    stage = _probe_stage(layout, release, options)
    variables = [
        Variable(name="PYTORCH_ALLOC_CONF", value="expandable_segments:True", reason="less fragmentation near the memory limit")
    ]
    if layout.tensor_parallel > 1:
        variables.append(
            Variable(
                name="CUDA_DEVICE_MAX_CONNECTIONS",
                value="32",
                reason="FSDP beside tensor parallelism needs several queues; 1 serialises them",
            )
        )
    if release == "0.2":
        variables.append(
            Variable(
                name="TORCH_NCCL_AVOID_RECORD_STREAMS", value="1", reason="collectives do not keep memory longer than they need it"
            )
        )
    off = [Switch(name="TORCH_NCCL_CUDA_EVENT_CACHE", risk="exact", what="fewer CUDA events under FSDP")]
    if layout.schedule == "dualpipev":
        off.append(
            Switch(
                name="parallelism.pipeline_parallel_expert_parallel_overlap",
                risk="exact",
                what="experts' exchange beside the other direction's compute",
            )
        )
    assumed = [
        "Learning rate and its schedule are placeholders; parameters and optimizer states are FP32, compute is BF16.",
        unsaved("checkpoint.enable", "job.dump_folder" if release == "0.2" else "dump_folder"),
    ]
    if not _names_data(case, release):
        assumed.append("The data are those of the configuration.")
    if release != "0.2" and "training.disable_cuda_graphs" not in {**decide(case, layout, release), **options.launch.keys}:
        assumed.append(
            "The prediction is of a run without CUDA graphs, as `--training.disable-cuda-graphs` runs it; torchtitan's default is "
            "with them, and neither what they save nor the memory that they hold is counted."
        )
    if case.model.num_mtp_layers:
        assumed.append(
            f"torchtitan's {flavour.module} {flavour.name} predicts one token: the estimate counts "
            f"{case.model.num_mtp_layers} more layer."
        )
    if layout.offload:
        assumed.append("enable_cpu_offload also keeps parameters and gradients in host memory between their uses.")
    return Manual(
        title=f"torchtitan {_FULL[release]}",
        commands=start_commands(layout, case, before="TORCHTITAN_PATH=/path/to/torchtitan"),
        blanks=(
            Blank(name="TORCHTITAN_PATH", default=Shell("$PWD"), what=f"checkout of torchtitan {_FULL[release]}"),
            Blank(name="HF_ASSETS_PATH", default=_TEST_ASSETS, what="folder of the model's tokenizer; by default a small one"),
            *((Blank(name="DATASET", default="c4_test", what="a known data set"),) if _names_data(case, release) else ()),
        ),
        variables=tuple(variables),
        off=tuple(off),
        probe=(
            f"`TORCHTITAN_PATH=/path/to/torchtitan bash probe.sh` runs one step of stage {stage} on one device with a fake "
                f"process group. Read the "
            f"peak memory of the log line `memory:`, and give it back with `meshwright estimate --request plan.yaml "
                f"--anchor-memory {stage}=BYTES`."
        ),
        assumed=tuple(assumed),
    )
