#!/usr/bin/env bash
# The ten-argument launcher of sparse experiments, mapped onto `vitscope sparsify`:
#   scripts/launch_experiment.sh DATASET MODEL EPOCHS REG EXP PRETRAINED RATE AUTO ALGORITHM [FILLBACK]
# DATASET     cifar10, cifar100, imagenet (a folder of that name under $VITSCOPE_DATA or data/), or a path
# MODEL       a model of `vitscope models`
# EPOCHS      of the dense network and of each round
# REG, EXP    rsst: where lambda ends, and how late it rises
# PRETRAINED  true or false: begin with published weights; a model that has none begins with new ones, with a warning
# RATE        share of what remains that a round takes
# AUTO        y: begin without asking
# ALGORITHM   rsst, refill, imp, oneshot or 2of4
# FILLBACK    refill: share of the units lost that is given back
# What is printed goes to launch_logs/ too. $VITSCOPE names another command than vitscope, $VITSCOPE_FLAGS more flags.
set -euo pipefail

usage() { sed -n '2,13p' "$0" | sed 's/^# \{0,1\}//'; }
fail() { printf 'error: %s\nwhere: %s\nto do: %s\n' "$1" "$(basename "$0")" "$2" >&2; exit 2; }

case "${1:-}" in -h | --help) usage; exit 0 ;; esac
[ "$#" -le 10 ] || fail "expected up to ten arguments, received $#" "$(basename "$0") --help shows them"

dataset=${1:-cifar10} model=${2:-vit_tiny} epochs=${3:-80} reg=${4:-1.0} exp=${5:-4}
pretrained=${6:-true} rate=${7:-0.2} auto=${8:-n} algorithm=${9:-rsst} fillback=${10:-0.2}

case "$pretrained" in true | false) ;; *) fail "PRETRAINED: expected true or false, received '$pretrained'" "the sixth argument" ;; esac
case "$auto" in y | n) ;; *) fail "AUTO: expected y or n, received '$auto'" "the eighth argument" ;; esac
case "$algorithm" in rsst | refill | imp | oneshot | 2of4) ;; *) fail "ALGORITHM: expected rsst, refill, imp, oneshot or 2of4, received '$algorithm'" "the ninth argument" ;; esac

here=$(cd "$(dirname "$0")/.." && pwd)
vitscope=${VITSCOPE:-vitscope}
if ! command -v "$vitscope" >/dev/null 2>&1; then
  [ -x "$here/.venv/bin/vitscope" ] || fail "there is no command '$vitscope'" "make setup, or name it in \$VITSCOPE"
  vitscope=$here/.venv/bin/vitscope
fi

name="$(basename "$dataset")-$model-$algorithm"
stamp=$(date +%Y%m%d-%H%M%S)
words=("$vitscope" sparsify --data "$dataset" --model "$model" --augment medium --epochs "$epochs" --dense-epochs "$epochs"
  --algorithm "$algorithm" --rate "$rate" --reg "$reg" --exp "$exp" --fillback "$fillback" --out "runs/$name-$stamp")
[ "$pretrained" = false ] || words+=(--pretrained)
read -r -a more <<<"${VITSCOPE_FLAGS:-}"
words+=("${more[@]}")

printf '%-12s%s\n' dataset "$dataset" model "$model" epochs "$epochs" reg "$reg" exp "$exp" pretrained "$pretrained" \
  rate "$rate" algorithm "$algorithm" fillback "$fillback" command "${words[*]}"
if [ "$auto" != y ]; then
  read -r -p "Begin? [y/N] " answer || answer=n
  case "$answer" in y | Y | yes) ;; *) echo "not begun"; exit 0 ;; esac
fi

mkdir -p launch_logs
log=launch_logs/$name-$stamp.log
echo "log         $log"
"${words[@]}" 2>&1 | tee -i "$log"  # Ctrl-C reaches both: what the run says while it saves itself is still to come
