#!/usr/bin/env bash
# Installs what DeepShard is built, tested and tried with, on Debian 12 and 13 and Ubuntu 24.04.
#
#   scripts/setup.sh          install what is missing (apt-get; with sudo when not root)
#   scripts/setup.sh --tests  what tests of clusters need too: an ssh server, SLURM, MPI's launcher. Not for a machine
#                             that serves others: Debian starts these services. Without them such tests are skipped
#   scripts/setup.sh --list   print the packages
#
# Safe to run again: where nothing is missing it calls apt not at all and needs no network. CUDA, NCCL and cuDNN, which
# GPU code is built with, are NVIDIA's packages and left to you (CONTRIBUTING.md, "GPU code").
set -euo pipefail

packages=(
  build-essential g++ cmake ninja-build pkg-config ccache        # compilers and build tools
  libgrpc++-dev libprotobuf-dev protobuf-compiler protobuf-compiler-grpc libssl-dev   # control plane
  libyaml-cpp-dev libcli11-dev libxxhash-dev                     # job specs, command lines, checksums
  libdnnl-dev libgloo-dev                                        # matrix products and data transport on CPUs
  libopenmpi-dev libhwloc-dev                                    # workers that mpirun starts, places near GPUs
  libsentencepiece-dev zlib1g-dev libzstd-dev                    # tokenizers, compressed texts
  liburing-dev                                                   # the file tier's reads and writes
  catch2                                                         # tests
  clang clang-format                                             # fuzz targets (runtime libraries: below), formatting
  bible-kjv                                                      # the quick start's text
)

# libFuzzer and the sanitizers of the clang that `clang` stands for here: libclang-rt-14-dev on Debian 12, -18-dev on
# Ubuntu 24.04, -19-dev on Debian 13.
clang_version() {
  local needs
  needs=$(dpkg-query --show --showformat='${Depends}' clang 2> /dev/null || true)
  [[ $needs =~ clang-([0-9]+) ]] || needs=$(apt-cache depends clang 2> /dev/null || true)
  if [[ $needs =~ clang-([0-9]+) ]]; then
    echo "${BASH_REMATCH[1]}"
  else  # no lists yet
    case "$(. /etc/os-release 2> /dev/null && echo "${ID:-}${VERSION_ID:-}")" in
      debian13) echo 19 ;;
      ubuntu24.04) echo 18 ;;
      *) echo 14 ;;
    esac
  fi
}
packages+=("libclang-rt-$(clang_version)-dev")

case "${1:-}" in
  "") ;;
  --tests) packages+=(openssh-server openssh-client openmpi-bin slurmctld slurmd slurm-client munge iproute2 procps) ;;
  --list) printf '%s\n' "${packages[@]}"; exit 0 ;;
  -h|--help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"; exit 0 ;;
  *) echo "error: unknown argument '$1'; usage: scripts/setup.sh [--tests | --list]" >&2; exit 2 ;;
esac

command -v dpkg-query > /dev/null && command -v apt-get > /dev/null || {
  echo "error: this system has no apt; install by other means what \`scripts/setup.sh --list\` prints" >&2; exit 3; }

missing=()
for package in "${packages[@]}"; do
  state=$(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2> /dev/null || true)
  [[ $state == installed ]] || missing+=("$package")
done
if [[ ${#missing[@]} -eq 0 ]]; then
  echo "setup: all ${#packages[@]} packages are installed"
  exit 0
fi

as_root=()
if [[ $(id -u) -ne 0 ]]; then
  command -v sudo > /dev/null || {
    echo "error: not root and no sudo; as root, run: apt-get install ${missing[*]}" >&2; exit 3; }
  as_root=(sudo)
fi
echo "setup: installing ${missing[*]}"
apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300)
"${apt[@]}" update
"${apt[@]}" install -y --no-install-recommends "${missing[@]}"
