"""Trials as a PyTorchJob of the Kubeflow operator, or a JobSet: rendered for ``kubectl apply``; nothing is started from here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from meshwright.errors import fault
from meshwright.measure.executors.base import Ended, Handle, State
from meshwright.measure.trial import safe_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from meshwright.measure.trial import Trial

IMAGE, PORT = "IMAGE", 29500
"""What the reader fills in, and the port of the first pod: pods have addresses of their own."""


class Kubernetes:
    """Renders; with ``--dry-run`` only."""

    name = "kubernetes"
    at_once = 4

    def check(self, trials: Sequence[Trial]) -> None:
        """Refuse: nothing is started on a cluster of Kubernetes."""
        raise fault("kubernetes.dry", "renders trials and starts none: --dry-run prints what `kubectl apply -f -` takes",
                    path="--executor")

    def describe(self, trial: Trial) -> str:
        """The manifest of a PyTorchJob."""
        return manifest(trial, "PyTorchJob")

    def submit(self, trial: Trial, folder: Path, mark: str, *, avoid: Sequence[str] = ()) -> Handle:
        """Never done: ``check`` has refused."""
        raise NotImplementedError

    def poll(self, handles: Sequence[Handle]) -> Mapping[Handle, State]:
        """Nothing runs."""
        return {handle: State(phase="ended") for handle in handles}

    def cancel(self, handle: Handle, grace_s: float) -> None:
        """Nothing runs."""

    def adopt(self, folder: Path, mark: str, handle: Handle | None) -> Handle | None:
        """Nothing was started."""
        return None

    def collect(self, handle: Handle, folder: Path) -> Ended:
        """Nothing was started."""
        return Ended(cause="lost")


def manifest(trial: Trial, kind: Literal["PyTorchJob", "JobSet"]) -> str:
    """What ``kubectl apply -f -`` takes: a ConfigMap of the trial's files, and the job that runs its command on each node."""
    import yaml

    name = trial.name.lower().replace("_", "-").replace(".", "-").strip("-")[:40] or "trial"
    files: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"{name}-files"},
                             "data": {_key(file.path): file.text for file in trial.files}}
    documents = [files] if trial.files else []
    documents.append(_pytorch_job(trial, name) if kind == "PyTorchJob" else _job_set(trial, name))
    return "---\n".join(yaml.safe_dump(each, sort_keys=False, width=130) for each in documents)


def _key(path: str) -> str:
    """What a ConfigMap may call a file: letters, digits, dots and hyphens."""
    return safe_name(path.replace("/", "."))


def _pytorch_job(trial: Trial, name: str) -> dict[str, Any]:
    """Source:  kubeflow.org/v1 PyTorchJob: the operator gives MASTER_ADDR, and RANK of a pod, which is its node's."""
    def replica(count: int) -> dict[str, Any]:
        return {"replicas": count, "restartPolicy": "Never", "template": {"spec": _pod(trial, name, {"NODE_RANK": "$(RANK)"})}}

    replicas = {"Master": replica(1), **({"Worker": replica(trial.nodes - 1)} if trial.nodes > 1 else {})}
    policy = {"cleanPodPolicy": "All", "backoffLimit": 0, "activeDeadlineSeconds": round(trial.limits.total_s)}
    return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": name},
            "spec": {"runPolicy": policy, "pytorchReplicaSpecs": replicas}}


def _job_set(trial: Trial, name: str) -> dict[str, Any]:
    """Source:  jobset.x-k8s.io/v1alpha2: JOB_COMPLETION_INDEX numbers pods, which are known by name behind a service of the set."""
    environment = {"NODE_RANK": "$(JOB_COMPLETION_INDEX)", "MASTER_ADDR": f"{name}-nodes-0-0.{name}"}
    job = {"parallelism": trial.nodes, "completions": trial.nodes, "completionMode": "Indexed", "backoffLimit": 0,
           "activeDeadlineSeconds": round(trial.limits.total_s),
           "template": {"spec": {"restartPolicy": "Never", **_pod(trial, name, environment)}}}
    return {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": name},
            "spec": {"failurePolicy": {"maxRestarts": 0},
                     "replicatedJobs": [{"name": "nodes", "replicas": 1, "template": {"spec": job}}]}}


def _pod(trial: Trial, name: str, more: Mapping[str, str]) -> dict[str, Any]:
    environment = {**trial.environment, **more, "MASTER_PORT": str(PORT)}
    container: dict[str, Any] = {
        "name": "pytorch", "image": IMAGE, "command": list(trial.command),
        "env": [{"name": key, "value": value} for key, value in environment.items()],
    }
    spec: dict[str, Any] = {"containers": [container]}
    if trial.accelerators:
        container["resources"] = {"limits": {"nvidia.com/gpu": trial.devices_per_node}}
    if trial.files:
        container |= {"workingDir": "/trial", "volumeMounts": [{"name": "files", "mountPath": "/trial"}]}
        items = [{"key": _key(file.path), "path": file.path} for file in trial.files]
        spec["volumes"] = [{"name": "files", "configMap": {"name": f"{name}-files", "items": items}}]
    return spec
