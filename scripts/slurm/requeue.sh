#!/bin/bash
# Trains for longer than a time limit: shortly before it the job takes a checkpoint and is put back into the queue, as
# often as it takes.
#
#     sbatch --nodes=4 --gpus-per-node=8 scripts/slurm/requeue.sh JOB.yaml
#     sbatch --array=0-3 --output=%x-%A_%a.out scripts/slurm/requeue.sh JOB.yaml
#
# Options before the script's name are sbatch's and win over the lines below; what follows the script's name is
# ds-launch's. Lines that begin with `##SBATCH` are off: remove one `#` where they suit your cluster.

# One file for all runs of the job: a run that starts anew appends to it.
#SBATCH --job-name=deepshard
#SBATCH --output=%x-%j.out
#SBATCH --open-mode=append

#SBATCH --nodes=1
##SBATCH --gpus-per-node=8
#SBATCH --time=04:00:00

# SIGUSR1 to this script alone (B:), 120 s before the limit or up to a minute earlier. Choose what a step and a
# checkpoint take together (checkpoint_stall_ms in metrics.jsonl), and some more.
#SBATCH --signal=B:USR1@120

# SLURM may put the job back itself: when a node fails, or a job of higher priority takes its place.
#SBATCH --requeue

# The job's name for scontrol. SLURM_JOB_ID of an array's task is a number that names the task to SLURM, but requeuing
# by it has meant the whole array in some versions: ARRAY_TASK is right in all.
id=$SLURM_JOB_ID
if [ -n "${SLURM_ARRAY_JOB_ID:-}" ]; then
  id=${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}
  # A name for each task keeps their checkpoints apart.
  set -- "$@" --set "job.name=${SWEEP:-sweep}-$SLURM_ARRAY_TASK_ID"
fi

# --resume auto: the newest complete checkpoint under OUTPUT/NAME, none at the first start. In the background, since
# bash runs traps only between commands, or while it waits.
"${DS_LAUNCH:-ds-launch}" "$@" --resume auto &
launch=$!

# USR1 came to this script alone: pass it on. SIGTERM (scancel, the limit itself) reaches every process of the job, so
# ds-launch has it already, and a second one would mean "at once". This script must only not end of it: SLURM would
# kill ds-launch in the middle of its checkpoint.
trap 'kill -USR1 "$launch" 2>/dev/null' USR1
trap : TERM

# A trapped signal ends `wait` early: wait until ds-launch itself has ended, and take its exit code.
wait "$launch"
while kill -0 "$launch" 2>/dev/null; do wait "$launch"; done
wait "$launch"
code=$?

# 138 = 128 + SIGUSR1: the job took its checkpoint and ended to go on later. Everything else is an ending: completed
# (0), a failure to look at, or scancel (143). Requeue once, here and nowhere else; SLURM then ends this script.
# A job that is put back again and again without ever ending has something wrong with it.
if [ "$code" -eq 138 ]; then
  if [ "${SLURM_RESTART_COUNT:-0}" -ge "${MAX_REQUEUES:-100}" ]; then
    echo "requeue.sh: job $id was requeued ${SLURM_RESTART_COUNT} times (MAX_REQUEUES): not again" >&2
  elif scontrol requeue "$id"; then
    echo "requeue.sh: job $id goes on from its checkpoint when it is its turn again"
  else
    echo "requeue.sh: job $id could not be requeued: submit it again; it goes on from its checkpoint" >&2
  fi
fi
exit "$code"
