#!/usr/bin/env bash
# train.py on several nodes of a Slurm cluster: sbatch slurm.sh
#
# It goes on with fewer nodes if one is lost, saves a checkpoint before the time limit, and queues itself again from
# there. Edit the lines marked EDIT; the rest is the same on every cluster.
#
#SBATCH --job-name=ata-gym
#SBATCH --nodes=2-4                # EDIT: fewest and most nodes
#SBATCH --ntasks-per-node=1        # torchrun starts the workers of a node
#SBATCH --cpus-per-task=8          # EDIT
##SBATCH --gpus-per-node=2         # EDIT: one # less where the workers have GPUs
##SBATCH --partition=NAME          # EDIT: one # less where your cluster asks for it
#SBATCH --time=04:00:00            # EDIT
#SBATCH --signal=B:USR1@180        # this script gets USR1 so many seconds before the time limit
#SBATCH --requeue                  # also after a lost node or a preemption
#SBATCH --open-mode=append         # one log, over all starts
#SBATCH --no-kill                  # the job outlives the loss of a node

set -uo pipefail

MIN_NODES=2                                      # EDIT: as above
WORKERS_PER_NODE=2                               # EDIT: with GPUs, one for each
MAX_RESTARTS=20                                  # EDIT: of the workers, when nodes join or leave or a worker fails
MAX_REQUEUES=50                                  # EDIT
VENV="$HOME/ata-gym"                             # EDIT: an environment with ata-gym[cluster], on a disk that all nodes see
CODE="${SLURM_SUBMIT_DIR:-$PWD}"                 # EDIT: the folder of train.py
CHECKPOINT="$CODE/checkpoint-$SLURM_JOB_ID.pt"   # EDIT: on a disk that all nodes see; a requeued job keeps its id
TRAIN=(--steps 10000 --budget 64 --policy default --checkpoint "$CHECKPOINT")  # EDIT

export PATH="$VENV/bin:$PATH"
export OMP_NUM_THREADS="$(( ${SLURM_CPUS_PER_TASK:-$WORKERS_PER_NODE} / WORKERS_PER_NODE ))"
export TORCH_ELASTIC_SHUTDOWN_TIMEOUT=120  # seconds to save in; torch before this variable allows 30
export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1  # else a restarted group may read addresses of the one before it
# export GLOO_SOCKET_IFNAME=ib0 NCCL_SOCKET_IFNAME=ib0  # EDIT where the name of a node leads to a slow network

# The first node holds the rendezvous, at a port that no other job of ours on it has.
FIRST_NODE=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
PORT="$(( 20000 + SLURM_JOB_ID % 20000 ))"

out_of_time=0
stop_workers() {
  out_of_time=1
  scancel --signal=TERM "$SLURM_JOB_ID"  # to the processes of srun; torchrun hands it on, and train.py saves
}
trap stop_workers USR1

# In the background, since bash runs a trap only between commands, or in a wait.
srun --no-kill --kill-on-bad-exit=0 \
  python -m torch.distributed.run \
  --nnodes="$MIN_NODES:$SLURM_JOB_NUM_NODES" \
  --nproc-per-node="$WORKERS_PER_NODE" \
  --max-restarts="$MAX_RESTARTS" \
  --rdzv-id="$SLURM_JOB_ID" \
  --rdzv-backend=c10d \
  --rdzv-endpoint="$FIRST_NODE:$PORT" \
  "$CODE/train.py" "${TRAIN[@]}" &
step="$!"

wait "$step"
code="$?"
while kill -0 "$step" 2>/dev/null; do  # the signal ended the wait, and not the step
  wait "$step"
  code="$?"
done

if [[ "$out_of_time" == 1 && "$code" != 0 ]]; then
  if [[ "${SLURM_RESTART_COUNT:-0}" -ge "$MAX_REQUEUES" ]]; then
    echo "The time is over, and the job has been queued again $MAX_REQUEUES times: sbatch slurm.sh goes on." >&2
    exit "$code"
  fi
  scontrol requeue "$SLURM_JOB_ID" && exit 0
fi
exit "$code"
