"""The command that starts a training on several machines, printed for the user to start."""

import shlex
from collections.abc import Sequence

PORT = 29400
OURS = ("--launch", "--nodes", "--processes")  # each with a value: what the printed command says otherwise


def line(launcher: str, words: Sequence[str], nodes: int, processes: int) -> str:
    """For `words` of a clozeworks command: a torchrun line for every machine, or a script for sbatch."""
    rest = shlex.join(["-m", "clozeworks", *without(words)])
    if launcher == "torchrun":
        return _torchrun(nodes, processes, "$HEAD", rest)
    return f"""#!/bin/bash
#SBATCH --job-name=clozeworks
#SBATCH --nodes={nodes}
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node={processes}
#SBATCH --cpus-per-task={4 * processes}
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=TERM@300

# Five minutes before the time is up every process is asked to save and leave; put back into the queue, the same job
# resumes from its newest checkpoint. --data and --out must lie on storage that all machines share.
export HEAD=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun {_torchrun(nodes, processes, '"$HEAD"', rest)}"""


def _torchrun(nodes: int, processes: int, head: str, rest: str) -> str:
    return (
        f"torchrun --nnodes {nodes} --nproc-per-node {processes} --max-restarts 3 --rdzv-backend c10d "
        f"--rdzv-id clozeworks --rdzv-endpoint {head}:{PORT} {rest}"
    )


def without(words: Sequence[str]) -> list[str]:
    """The words of the command itself."""
    kept: list[str] = []
    rest = iter(words)
    for word in rest:
        if word in OURS:
            next(rest, None)  # its value
        elif word != "--dry-run" and word.split("=")[0] not in OURS:
            kept.append(word)
    return kept
