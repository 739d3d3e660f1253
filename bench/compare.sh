#!/bin/sh
# Speed of cascadia beside its peers, in turns: measures, tabulates and draws. Needs Python and the peers' binaries.
#   bench/compare.sh model.gguf --llama-bench path/to/llama-bench [--llama-batched-bench path] [--ik-bench path]
# See bench/compare.py --help.
set -eu
here=$(dirname "$0")
python3 "$here/compare.py" "$@"
