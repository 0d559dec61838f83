"""The torchrun engine: `torchrun --nnodes=4 --nproc-per-node=1 train.py`."""
