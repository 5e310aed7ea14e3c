#!/bin/bash
# Trains a job on several nodes:
#
#     sbatch --nodes=4 --gpus-per-node=8 scripts/slurm/many_nodes.sh JOB.yaml
#
# Options before the script's name are sbatch's and win over the lines below; what follows the script's name is
# ds-launch's. Lines that begin with `##SBATCH` are off: remove one `#` where they suit your cluster.
#
# This script runs once, on the first node. ds-launch finds the allocation, calls srun itself to start one agent on each
# node, and the agents start the workers: no srun here, no hostfile, no MASTER_ADDR.

# What squeue shows, and the name of the file with what ds-launch prints (%x: job's name, %j: its number).
#SBATCH --job-name=deepshard
#SBATCH --output=%x-%j.out

# Slots (workers) of each node are the GPUs that SLURM gives; without GPUs its tasks. --ntasks-per-node does not count
# where there are GPUs: agents are always one a node.
#SBATCH --nodes=2
##SBATCH --gpus-per-node=8
##SBATCH --ntasks-per-node=1

# Whole nodes: all processors and all memory of each.
##SBATCH --exclusive
##SBATCH --mem=0

# Nodes below one switch, where the network has such islands: wait up to an hour for them.
##SBATCH --switches=1@01:00:00

# When a node fails SLURM ends the job at once, unless it is told to leave that to the job. With launch.min_nodes the
# job goes on with the nodes that are left: it needs this line.
##SBATCH --no-kill

# After this time SLURM sends SIGTERM, and KillWait later (scontrol show config; 30 s unless the site changed it)
# SIGKILL. In between the job takes a checkpoint. requeue.sh goes on by itself.
#SBATCH --time=04:00:00

# Run directories and data belong on a file system that all nodes see: --output DIR, or the folder that you submit from.
# exec: ds-launch takes this shell's place. A shell would end at SIGTERM, and SLURM kills what outlives the script:
# ds-launch would lose the time for its checkpoint. Where ds-launch is not in PATH: export DS_LAUNCH=/path/to/ds-launch.
exec "${DS_LAUNCH:-ds-launch}" "$@"
