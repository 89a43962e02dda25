#!/usr/bin/env bash
# What is worth measuring on a GPU that is at hand for 25 minutes, most informative first.
#
#   benchmarks/on_gpu.sh FOLDER [PART...]             on the GPU; all parts, or those named
#   benchmarks/on_gpu.sh --dry-run FOLDER [PART...]   the same commands on the CPU, at small sizes
#
# Parts: tests, cost, claims, table, long, decode, accuracy.
#
# Each part is complete by itself, has a time limit of its own, and writes its records as it goes:
# FOLDER/store holds costs, tables and runs, FOLDER/claims the claims, FOLDER/PART.log what a part
# printed, FOLDER/parts.tsv how each part ended. A part that is started again continues. SECONDS_IN_ALL
# is the time of all parts together, PYTHON the interpreter of an environment with the project.
# Exit code 1 where a part failed; one that reached its time limit has not.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 2

readonly PARTS=(tests cost claims table long decode accuracy)
readonly IN_ALL=${SECONDS_IN_ALL:-1500}
readonly PYTHON=${PYTHON:-python}

usage() {
  sed -n '2,13s/^# \{0,1\}//p' "$0"
  exit 2
}

dry=no
if [[ ${1:-} == --dry-run ]]; then
  dry=yes
  shift
fi
[[ $# -ge 1 && $1 != -* ]] || usage
mkdir -p "$1" || exit 2
folder=$(cd "$1" && pwd)
shift
wanted=("${@:-${PARTS[@]}}")
for name in "${wanted[@]}"; do
  [[ " ${PARTS[*]} " == *" $name "* ]] || usage
done
readonly dry folder

failed=0
# part NAME SECONDS COMMAND: run the command if the part is wanted, within its limit and that of all.
part() {
  local name=$1 limit=$2 start=$SECONDS code left
  shift 2
  [[ " ${wanted[*]} " == *" ${name%%-*} "* ]] || return 0
  left=$((IN_ALL - SECONDS))
  ((limit = limit < left ? limit : left))
  if ((limit < 5)); then
    printf '%s\tno time left\n' "$name" | tee -a "$folder/parts.tsv"
    return 0
  fi
  echo "$name: at most $limit s: $*"
  timeout --kill-after=20 "$limit" "$@" >> "$folder/$name.log" 2>&1
  code=$?
  case $code in
    0) status=ok ;;
    124 | 137 | 143) status="time limit" ;;
    *) status="exit code $code" failed=1 ;;
  esac
  printf '%s\t%s\t%s s\n' "$name" "$status" $((SECONDS - start)) | tee -a "$folder/parts.tsv"
}

# measure NAME SECONDS ARGUMENTS: the same of a command of the harness, with the store of the folder.
measure() {
  local name=$1 limit=$2
  shift 2
  part "$name" "$limit" "$PYTHON" -m harness.cli "$@" --store "$folder/store"
}

if [[ $dry == yes ]]; then
  device=(--device cpu) claims=(layer --tiny) rows=(-a primal --questions listops) budget=smoke seconds=0
  variants=primal lengths=32 longest=128 tokens=64 tasks=(listops) trained=(primal)
else
  device=(--device cuda) claims=() rows=() budget=paper seconds=1
  variants=primal,linear,flowformer,performer,gated-linear,none
  lengths=1024,4096,16384,65536 longest=262144,1048576 tokens=65536
  tasks=(listops text image) trained=(primal softmax+primal softmax)
  "$PYTHON" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' || {
    echo "torch finds no CUDA device; use --dry-run" >&2
    exit 2
  }
  nvidia-smi > "$folder/nvidia-smi.txt" 2>&1
fi
sampling=("${device[@]}" --seconds "$seconds" --timeout 120)

part tests 180 "$PYTHON" -m pytest -q -p no:cacheprovider -m gpu tests
measure cost 270 cost "${sampling[@]}" --pass train,forward -a "$variants" --lengths "$lengths" \
  --batch "tokens=$tokens"
part claims 400 "$PYTHON" -m benchmarks "${claims[@]}" "${device[@]}" --out "$folder/claims"
measure table 240 run --suite chen2023-cost "${device[@]}" "${rows[@]}"
measure long 240 cost "${sampling[@]}" --pass train -a primal,linear --lengths "$longest"
measure decode 180 cost "${sampling[@]}" --pass decode -a primal,linear --lengths "$lengths" \
  --batch 16
for attention in "${trained[@]}"; do
  for task in "${tasks[@]}"; do
    measure "accuracy-$task-$attention" 600 run "${device[@]}" --budget "$budget" --task "$task" \
      -a "$attention"
  done
done
exit "$failed"
