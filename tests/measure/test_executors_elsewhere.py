"""Hosts by ssh, with a pretended ``ssh`` that runs commands here; manifests of Kubernetes; jobs of a pretended Ray."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import yaml

from meshwright.documents.source import File
from meshwright.errors import InputError
from meshwright.measure.executors.kubernetes import Kubernetes, manifest
from meshwright.measure.executors.processes import marked
from meshwright.measure.executors.ray import Ray
from meshwright.measure.executors.ssh import Ssh
from meshwright.measure.trial import Limits, Trial
from meshwright.testing.executors import executor_promises

SSH = """#!/bin/bash
while [[ "$1" != -- ]]; do shift; done
[[ "$2" == away ]] && { echo "ssh: Could not resolve hostname away" >&2; exit 255; }
cd "$HOMES/$2" 2>/dev/null || { mkdir -p "$HOMES/$2"; cd "$HOMES/$2"; }
exec bash -c "$3"
"""
PROMISES = executor_promises(lambda: Ssh(["one", "two"]))
FILES = (File(path="conf/a.json", text="{}"), File(path="train.sh", text="x"))
TRIAL = Trial(
    label="TP8 pp2;", command=("bash", "train.sh"), files=FILES, devices=16, nodes=2, devices_per_node=8, accelerators=True,
    environment={"A": "$(b)"}, limits=Limits(total_s=90.0),
)


@pytest.fixture(autouse=True)
def _hosts(tmp_path_factory, monkeypatch):
    place = tmp_path_factory.mktemp("hosts")
    (place / "ssh").write_text(SSH)
    (place / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{place}:{os.environ['PATH']}")
    monkeypatch.setenv("HOMES", str(place))


@pytest.mark.parametrize("promise", [each for name, each in PROMISES.items() if name != "a_trial_that_ended_is_found_by_another"])
def test_hosts_keep_the_promises(promise, tmp_path):
    promise(tmp_path)


def test_every_host_has_its_rank_and_nothing_is_left_there(tmp_path):
    runs = Ssh(["one", "two", "three"])
    trial = Trial(label="x", command=("bash", "-c", "echo $NODE_RANK $MASTER_ADDR; pwd"), nodes=2, limits=Limits(grace_s=0.3))
    handle = runs.submit(trial, tmp_path, "m1", avoid=("one",))
    while runs.poll([handle])[handle].phase != "ended":
        pass
    ended = runs.collect(handle, tmp_path)
    assert (ended.exit_status, ended.nodes, ended.cause) == (0, ("two", "three"), "")
    assert (tmp_path / "output.log").read_text().splitlines()[0] == "0 two"
    assert (tmp_path / "output-1.log").read_text().splitlines()[0] == "1 two"
    assert not list(Path(os.environ["HOMES"]).glob("*/.meshwright-trials/*"))


def test_a_host_that_ends_ends_the_others(tmp_path):
    runs = Ssh(["one", "two"])
    command = ("bash", "-c", "[ $NODE_RANK = 1 ] && exit 3; sleep 1004")
    trial = Trial(label="x", command=command, nodes=2, limits=Limits(grace_s=0.3))
    handle = runs.submit(trial, tmp_path, "m2")
    while runs.poll([handle])[handle].phase != "ended":
        pass
    ended = runs.collect(handle, tmp_path)
    assert (ended.exit_status, ended.cause, ended.said) == (3, "", "exit status 3 on two"), "what it failed of is what it came to"
    assert not marked("m2")


def test_a_host_that_fails_when_the_first_has_ended_well_is_not_forgotten(tmp_path):
    runs = Ssh(["one", "two"])
    trial = Trial(label="x", command=("bash", "-c", "[ $NODE_RANK = 1 ] && { sleep 0.5; exit 4; }; exit 0"), nodes=2)
    handle = runs.submit(trial, tmp_path, "m3")
    while runs.poll([handle])[handle].phase != "ended":
        pass
    assert runs.collect(handle, tmp_path).exit_status == 4


def test_what_is_wrong_with_hosts_is_one_line():
    with pytest.raises(InputError, match="--executor: --hosts names nobody"):
        Ssh().check([TRIAL])
    with pytest.raises(InputError, match="--hosts: the layouts need 2 nodes and --hosts names 1"):
        Ssh(["one"]).check([TRIAL])
    with pytest.raises(InputError, match="--hosts: away cannot be used: ssh: Could not resolve hostname away"):
        Ssh(["one", "away"]).check([TRIAL])
    Ssh(["one", "two"]).check([TRIAL])


@pytest.mark.parametrize("kind", ["PyTorchJob", "JobSet"])
def test_a_manifest_says_the_trial(kind):
    files, job = yaml.safe_load_all(manifest(TRIAL, kind))
    assert files["data"] == {"conf.a.json": "{}", "train.sh": "x"}
    text = json.dumps(job)
    assert job["kind"] == kind and job["metadata"]["name"].startswith("tp8-pp2-") and job["metadata"]["name"].islower()
    assert text.count('"nvidia.com/gpu": 8') == (2 if kind == "PyTorchJob" else 1) and '"path": "conf/a.json"' in text
    assert '{"name": "A", "value": "$(b)"}' in text and '"activeDeadlineSeconds": 90' in text and '"backoffLimit": 0' in text
    if kind == "PyTorchJob":
        assert job["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] == 1
    else:
        assert job["spec"]["replicatedJobs"][0]["template"]["spec"]["completions"] == 2
    with pytest.raises(InputError, match="renders trials and starts none: --dry-run"):
        Kubernetes().check([TRIAL])
    assert Kubernetes().describe(TRIAL) == manifest(TRIAL, "PyTorchJob")


def test_a_file_with_a_hostile_name_has_one_that_kubernetes_takes():
    hostile = "x; touch y; $(id).sh"
    files, job = yaml.safe_load_all(manifest(replace(TRIAL, files=(File(path=hostile, text="x"),)), "JobSet"))
    [key] = files["data"]
    assert re.fullmatch(r"[-._a-zA-Z0-9]{1,253}", key) and f'"key": "{key}"' in json.dumps(job)


class Jobs:
    """Ray's client, with jobs that are processes of this machine."""

    def __init__(self):
        self.jobs = {}

    def submit_job(self, *, entrypoint, submission_id, metadata, runtime_env, **devices):
        folder = runtime_env["working_dir"]
        with Path(folder, "ray.out").open("wb") as out:
            process = subprocess.Popen(["sh", "-c", entrypoint], cwd=folder, stdout=out, stderr=out)
        self.jobs[submission_id] = SimpleNamespace(process=process, folder=folder, metadata=metadata, submission_id=submission_id)
        return submission_id

    def get_job_status(self, name):
        code = self.jobs[name].process.poll()
        return SimpleNamespace(value="RUNNING" if code is None else "SUCCEEDED" if code == 0 else "FAILED")

    def list_jobs(self):
        return list(self.jobs.values())

    def get_job_logs(self, name):
        return Path(self.jobs[name].folder, "ray.out").read_text()

    def get_job_info(self, name):
        return SimpleNamespace(status=self.get_job_status(name), driver_exit_code=self.jobs[name].process.poll(), start_time=1000,
                               end_time=3000, message="")


def test_jobs_of_ray(tmp_path, monkeypatch):
    monkeypatch.setattr("meshwright.measure.executors.ray.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"--executor: needs Ray, which is not installed: pip install 'meshwright\[ray\]'"):
        Ray().check([])
    jobs = Jobs()
    module = ModuleType("ray.job_submission")
    module.JobSubmissionClient = lambda: jobs
    monkeypatch.setitem(sys.modules, "ray.job_submission", module)
    monkeypatch.setattr("meshwright.measure.executors.ray.find_spec", lambda name: name)
    runs = Ray()
    with pytest.raises(InputError, match="the layouts need 2 nodes"):
        runs.check([TRIAL])
    handle = runs.submit(Trial(label="x", command=("echo", "$(id)"), limits=Limits(grace_s=0.3)), tmp_path, "m9")
    while runs.poll([handle])[handle].phase != "ended":
        pass
    assert Ray().adopt(tmp_path, "m9", None) == handle and Ray().adopt(tmp_path, "m10", None) is None
    ended = runs.collect(handle, tmp_path)
    assert (ended.exit_status, ended.duration_s, (tmp_path / "output.log").read_text()) == (0, 2.0, "$(id)\n")
    assert runs.describe(TRIAL) == "ray job submit --working-dir . --entrypoint-num-gpus 16 -- bash train.sh"
