#!/bin/bash
# How fast 64 processes start and end on one machine: ds-launch beside srun, in the same run, turn by turn.
#
#     scripts/bench/launch_speed.sh [--ranks 64] [--times 20] [--build build]
#
# srun needs a SLURM that runs here. Where none does, and its programs are installed, a small one is started for the
# time of the run (munged, slurmctld, one slurmd, in a temporary folder, on free ports). Prints the median, the least and
# the greatest time of each, from exec to exit, and the ratio of the medians.
set -eu
ranks=64 times=20 build=build
while [ $# -gt 0 ]; do
  case $1 in
    --ranks) ranks=$2; shift 2 ;;
    --times) times=$2; shift 2 ;;
    --build) build=$2; shift 2 ;;
    *) sed -n '2,9p' "$0" | cut -c3-; [ "$1" = --help ] && exit 0; exit 2 ;;
  esac
done
launch=$(realpath "$build/bin/ds-launch")
[ -x "$launch" ] || { echo "error: there is no $build/bin/ds-launch: scripts/build.sh ds-launch" >&2; exit 2; }
folder=$(mktemp -d)
chmod 755 "$folder"
daemons=()
finish() {
  for ((i = ${#daemons[@]} - 1; i >= 0; --i)); do kill "${daemons[i]}" 2>/dev/null || true; done
  wait
  rm -rf "$folder"
}
trap finish EXIT
export PATH=$PATH:/usr/sbin:/sbin

free_port() {
  local port
  while :; do
    port=$((20000 + RANDOM % 10000))
    (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || { echo "$port"; return; }
  done
}

start_slurm() {
  local host user
  host=$(hostname -s) user=$(id -un)
  head -c 256 /dev/urandom > "$folder/munge.key"
  chmod 600 "$folder/munge.key"
  mkdir "$folder/state" "$folder/spool"
  cat > "$folder/slurm.conf" <<CONF
ClusterName=bench
SlurmctldHost=$host(127.0.0.1)
SlurmUser=$user
SlurmdUser=$user
AuthInfo=socket=$folder/munge.socket
SlurmctldPort=$(free_port)
SlurmdParameters=config_overrides
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
NodeName=bench NodeHostname=$host NodeAddr=127.0.0.1 Port=$(free_port) CPUs=$ranks RealMemory=500
PartitionName=p Nodes=bench Default=YES State=UP
CONF
  export SLURM_CONF=$folder/slurm.conf
  munged --foreground --force --key-file "$folder/munge.key" --socket "$folder/munge.socket" \
    --pid-file "$folder/munged.pid" --log-file "$folder/munged.log" --seed-file "$folder/munged.seed" \
    > "$folder/munged.out" 2>&1 &
  daemons+=($!)
  until [ -S "$folder/munge.socket" ]; do sleep 0.05; done
  slurmctld -D -f "$SLURM_CONF" > "$folder/slurmctld.out" 2>&1 &
  daemons+=($!)
  slurmd -D -N bench -f "$SLURM_CONF" > "$folder/slurmd.out" 2>&1 &
  daemons+=($!)
  for ((i = 0; i < 200; ++i)); do
    [ "$(sinfo --noheader --format=%T 2>/dev/null)" = idle ] && return
    sleep 0.1
  done
  echo "error: the small SLURM does not come up:" >&2
  tail -n 5 "$folder"/*.out >&2
  exit 1
}

seconds() {  # the time of a command, which must succeed
  local begin=$EPOCHREALTIME end
  "$@" > "$folder/said" 2>&1 || { echo "error: $* failed:" >&2; cat "$folder/said" >&2; exit 1; }
  end=$EPOCHREALTIME
  awk "BEGIN { printf \"%.4f\\n\", $end - $begin }"
}

with_srun=yes
if ! sinfo --noheader > /dev/null 2>&1; then
  if command -v slurmctld slurmd munged srun > /dev/null; then start_slurm; else with_srun=no; fi
fi
for ((i = 0; i < times; ++i)); do
  seconds "$launch" --bootstrap local --output "$folder/runs" --num-gpus "$ranks" -- true >> "$folder/ds-launch"
  [ $with_srun = no ] || seconds srun --ntasks="$ranks" --nodes=1 true >> "$folder/srun"
done
echo "$ranks x true, $times times each, $(nproc) processors, load $(cut -d' ' -f1-3 /proc/loadavg)"
for name in ds-launch srun; do
  [ -e "$folder/$name" ] || { echo "$name: not measured (SLURM's programs are not installed)"; continue; }
  sort -n "$folder/$name" | awk -v name=$name '{ t[NR] = $1 }
    END { printf "%-10s median %.3f s  least %.3f s  greatest %.3f s\n", name, t[int((NR + 1) / 2)], t[1], t[NR] }'
done
if [ $with_srun = yes ]; then
  awk -v n="$(sort -n "$folder/ds-launch" | sed -n "$(((times + 1) / 2))p")" \
      -v s="$(sort -n "$folder/srun" | sed -n "$(((times + 1) / 2))p")" \
      'BEGIN { printf "ds-launch / srun: %.2f\n", n / s }'
fi
