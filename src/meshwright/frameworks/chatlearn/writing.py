"""A plan as ChatLearn's files: YAML, launch script, README, and the patch for what its classes do not declare."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.frameworks.base import File, Options
from meshwright.frameworks.chatlearn.deciding import TRAINER, decide
from meshwright.frameworks.chatlearn.document import document_text
from meshwright.frameworks.chatlearn.guide import manual_of
from meshwright.frameworks.chatlearn.patch import patch_file, undeclared
from meshwright.frameworks.manual import Launch, launch_script, readme

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout


def write(case: Case, layout: Layout, release: str, options: Options) -> tuple[File, ...]:
    """``grpo.yaml``, ``launch.sh``, ``README.md``, and ``chatlearn.patch`` where fields are missing."""
    keys = {**decide(case, layout, release), **options.launch.keys}
    patch = patch_file(undeclared(keys), interleaved=layout.virtual_stages > 1)
    manual = manual_of(case, layout, patched=patch is not None)
    command = (
        'env RANK="$NODE" NODE_RANK="$NODE" WORLD_SIZE="$NODES" NNODES="$NODES" GPUS_PER_NODE="$DEVICES_PER_NODE"',
        'LOCAL_MASTER_ADDR="$MASTER_ADDR"', 'python chatlearn/entrypoint.py grpo --config-file "$HERE/grpo.yaml"',
        'runtime_args.data_path="$DATA_PATH"', 'runtime_args.eval_data_path="$EVAL_DATA_PATH"',
        'runtime_args.output_dir="$OUTPUT_DIR"', 'models.policy.load="$HF_MODEL"', f'{TRAINER}.load="$TRAINER_MODEL"',
    )
    files = (
        File(path="grpo.yaml", text=document_text(case, layout, keys)),
        launch_script(case, layout, options, manual, Launch(checkout="CHATLEARN", command=command)),
        readme(case, layout, options, manual),
    )
    return files if patch is None else (*files, patch)
