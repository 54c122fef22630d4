"""A picotron configuration for command lines that read files."""

from __future__ import annotations

import json

CONFIGURATION = {
    "distributed": {"tp_size": 4, "cp_size": 1, "pp_size": 1, "dp_size": 4, "pp_engine": "1f1b", "use_cpu": False},
    "model": {"name": "meta-llama/Meta-Llama-3-8B", "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8},
    "training": {
        "seed": 1, "learning_rate": 0.0003, "total_train_steps": 10, "seq_length": 4096, "micro_batch_size": 1,
        "gradient_accumulation_steps": 32, "num_samples": None, "max_tokens": None,
    },
    "dataset": {"name": "a/b", "subset_name": None, "num_workers": 0, "num_proc": 1},
    "checkpoint": {"save_dir": "c", "save_frequency": 100, "load_path": ""},
    "logging": {"use_wandb": False, "project_name": "p", "run_name": None},
    "environment": {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "FLASH_ATTEN": "1", "HF_TOKEN": None},
}


def configuration(directory, **changes) -> str:
    """The path of the configuration with values changed; ``section__name=value``."""
    document = json.loads(json.dumps(CONFIGURATION))
    for key, value in changes.items():
        section, name = key.split("__")
        document[section][name] = value
    path = directory / "config.json"
    path.write_text(json.dumps(document, indent=2))
    return str(path)


def bad_files(directory) -> dict[str, str]:
    """Name -> path of files that are none."""
    contents = {
        "broken.yaml": b"a: [1, 2", "broken.json": b'{"a": 1,', "broken.toml": b"a = = 3", "binary.json": bytes(range(256)) * 9,
        "binary.sh": bytes(range(256)), "cycle.yaml": b"a: &x [*x]\n", "empty.json": b"", "empty.sh": b"", "list.json": b"[1]",
        "quote.sh": b"torchrun 'unterminated --x 3\n", "bomb.yaml": b"a: &a [x,x,x,x,x,x,x,x,x]\n" + b"".join(
            f"{chr(98 + n)}: &{chr(98 + n)} [{','.join('*' + chr(97 + n) for _ in range(9))}]\n".encode() for n in range(9)
        ),
    }
    for name, content in contents.items():
        (directory / name).write_bytes(content)
    with (directory / "large.yaml").open("wb") as sparse:
        sparse.truncate(50 * 10**6)
    (directory / "directory").mkdir()
    return {name: str(directory / name) for name in (*contents, "large.yaml", "directory", "missing.json")}
