#!/bin/bash
# Judge the rows of a folder as a Slurm job array in the Apptainer image, a shard on each GPU, and merge the shards:
#
#   export IMAGE=/images/localjudge.sif MODEL=/models/Qwen3-8B ROWS=/data/sweep OUT=/data/runs/sweep SHARDS=16
#   shards=$(sbatch --parsable --array=1-$SHARDS --gres=gpu:1 slurm-array.sh)
#   sbatch --dependency=afterok:$shards slurm-array.sh merge
#
# The merged run is $OUT/whole. A shard that was stopped (its time, a node that failed, `scancel`) continues when it is
# submitted again with the same SHARDS, and a complete one ends at once: sbatch --array=3,7 --gres=gpu:1 slurm-array.sh
# Options after `slurm-array.sh` go to `localjudge score`: slurm-array.sh --rubric /rows/my-rubric.toml
#SBATCH --job-name=localjudge
#SBATCH --cpus-per-task=8 --mem=64G --time=08:00:00
#SBATCH --requeue --signal=TERM@60
set -euo pipefail

: "${IMAGE:?the .sif file}" "${MODEL:?the directory of a model}" "${ROWS:?a folder of .jsonl files}"
: "${OUT:?a folder for the runs}" "${SHARDS:?the number of shards}"
cache=${CACHE:-$OUT/cache}
mkdir -p "$OUT" "$cache"

in_image() {
    local status=0
    srun apptainer run --nv --cleanenv --no-home --net --network none --pwd /runs \
        --bind "$MODEL:/model:ro,$ROWS:/rows:ro,$OUT:/runs,$cache:/cache" "$IMAGE" "$@" || status=$?
    # 3: all is judged, but some rows failed, each with a reason in its line. The shards can be merged.
    [ "$status" -eq 3 ] || return "$status"
}

if [ "${1:-}" = merge ]; then
    parts=()
    for ((shard = 1; shard <= SHARDS; shard++)); do parts+=("/runs/$shard"); done
    in_image merge "${parts[@]}" --out /runs/whole
else
    in_image score '/rows/*.jsonl' --system-from filename --model /model \
        --shard "$SLURM_ARRAY_TASK_ID/$SHARDS" --out "/runs/$SLURM_ARRAY_TASK_ID" "$@"
fi
