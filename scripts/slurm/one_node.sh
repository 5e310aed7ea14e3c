#!/bin/bash
# Trains a job on the GPUs of one node:
#
#     sbatch scripts/slurm/one_node.sh JOB.yaml
#     sbatch --gpus-per-node=4 scripts/slurm/one_node.sh JOB.yaml --set training.steps=1000
#
# Options before the script's name are sbatch's and win over the lines below; what follows the script's name is
# ds-launch's. Lines that begin with `##SBATCH` are off: remove one `#` where they suit your cluster.

# What squeue shows, and the name of the file with what ds-launch prints (%x: job's name, %j: its number).
#SBATCH --job-name=deepshard
#SBATCH --output=%x-%j.out

# One node. Its slots (workers) are the GPUs that SLURM gives; without GPUs the tasks of the node.
#SBATCH --nodes=1
##SBATCH --gpus-per-node=8
##SBATCH --ntasks-per-node=2

# Processors and memory: of a node that is not shared, all. A worker without a GPU computes with its share of these
# processors; a worker with one reads and tokenizes data with it.
##SBATCH --exclusive
##SBATCH --mem=0

# After this time SLURM sends SIGTERM, and KillWait later (scontrol show config; 30 s unless the site changed it)
# SIGKILL. In between the job takes a checkpoint. requeue.sh goes on by itself.
#SBATCH --time=04:00:00

# exec: ds-launch takes this shell's place. A shell would end at SIGTERM, and SLURM kills what outlives the script:
# ds-launch would lose the time for its checkpoint. Where ds-launch is not in PATH: export DS_LAUNCH=/path/to/ds-launch.
exec "${DS_LAUNCH:-ds-launch}" "$@"
