#!/bin/bash
# Trains one job file several times, each with settings of its own, as an array:
#
#     sbatch --array=0-3 scripts/slurm/array.sh JOB.yaml
#
# Options before the script's name are sbatch's and win over the lines below; what follows the script's name is
# ds-launch's. Lines that begin with `##SBATCH` are off: remove one `#` where they suit your cluster.

# %A is the array's number, %a the task's: a file for each.
#SBATCH --job-name=deepshard
#SBATCH --output=%x-%A_%a.out

# Which tasks there are; with %2 behind, two at a time at most.
#SBATCH --array=0-3

# Of each task.
#SBATCH --nodes=1
##SBATCH --gpus-per-node=8
#SBATCH --time=04:00:00

# What this task does otherwise than the others: a learning rate each, say. Here a seed.
settings=(--set "job.seed=$((1234 + SLURM_ARRAY_TASK_ID))")

# Runs lie in OUTPUT/NAME/RUN-ID. A name for each task keeps them apart: `latest` is the task's own, and --resume auto
# finds the checkpoints of the same task and of no other. (Tasks of one name would still write into folders of their
# own, but each would resume from whichever checkpoint is the newest.)
name=${SWEEP:-sweep}-$SLURM_ARRAY_TASK_ID

# exec: ds-launch takes this shell's place. A shell would end at SIGTERM, and SLURM kills what outlives the script:
# ds-launch would lose the time for its checkpoint. Where ds-launch is not in PATH: export DS_LAUNCH=/path/to/ds-launch.
exec "${DS_LAUNCH:-ds-launch}" "$@" --set "job.name=$name" "${settings[@]}" --resume auto
