#!/usr/bin/env bash
# Builds all fuzz targets and runs them in turn, two at a time; fails on crashes, on inputs that take more than 64 MiB,
# and on hangs. No nightly toolchain is needed.
#   fuzz/run.sh --seconds 10           what check.sh runs: from the seeds in fuzz/corpus, the same random numbers each time
#   fuzz/run.sh --minutes 30           each target so long; keeps what it finds in target/fuzz/corpus, tells of slow inputs
#   fuzz/run.sh --minutes 5 gguf http  only these
#   fuzz/run.sh --input FILE gguf      runs one input again
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

seconds=10 is_long=false input=
while [ $# -gt 0 ]; do
    case $1 in
    --seconds) seconds=$2 && shift 2 ;;
    --minutes) seconds=$(($2 * 60)) is_long=true && shift 2 ;;
    --input) input=$2 && shift 2 ;;
    -*) sed -n '2,/^set/s/^# \?//p' "$0" >&2 && exit 2 ;;
    *) break ;;
    esac
done
targets=("$@")
[ $# -gt 0 ] || mapfile -t targets < <(basename -s .rs fuzz/fuzz_targets/*.rs)

# With the features of the whole workspace, so that dependencies are those that the tests have compiled.
build=(cargo build --locked --release --quiet --workspace --features cascadia-fuzz/libfuzzer)
build+=("${targets[@]/#/--bin=fuzz-}")
if $is_long; then
    # Dependencies report their coverage too. With --target, build scripts and procedural macros do not.
    triple=$(rustc -vV | sed -n 's/^host: //p')
    programs=target/$triple/release
    RUSTFLAGS=$(fuzz/coverage.sh echo) "${build[@]}" --target "$triple"
else
    # Only our own crates do, and all others are as they were.
    programs=target/release
    RUSTC_WORKSPACE_WRAPPER=$PWD/fuzz/coverage.sh "${build[@]}"
fi

scratch=$(mktemp -d -p /dev/shm 2>/dev/null || mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export TMPDIR=$scratch

if [ -n "$input" ]; then
    "$programs/fuzz-${targets[0]}" "$input"
    exit
fi

fuzz() { # fuzz TARGET: run it; its output is shown when it fails
    local target=$1 found artifacts=target/fuzz/artifacts/$1 log=$scratch/$1.log
    # A busy machine is slow, so only the long form tells of slow inputs; what takes a minute hangs on any machine.
    local limits=(-rss_limit_mb=1024 -max_len=16384 -timeout=60)
    if $is_long; then
        found=target/fuzz/corpus/$target
        limits+=(-report_slow_units=2)
    else
        found=$scratch/corpus/$target
        limits+=(-seed=1)
    fi
    mkdir -p "$found" "$artifacts"
    rm -f "$artifacts"/slow-unit-*
    if "$programs/fuzz-$target" -max_total_time="$seconds" -artifact_prefix="$artifacts/" -print_final_stats=1 \
        "${limits[@]}" "$found" "fuzz/corpus/$target" >"$log" 2>&1; then
        echo "$target: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") inputs," \
            "$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$log" | tail -1) edges"
        ls "$artifacts"/slow-unit-* 2>/dev/null | sed 's/^/  slow: /' || true
    else
        tail -60 "$log" >&2
        echo "$target FAILED; again with: fuzz/run.sh --input $(ls -t "$artifacts"/{crash,oom,timeout}-* 2>/dev/null | head -1) $target" >&2
        return 1
    fi
}

# Two at a time, and all of them, whatever one says.
failed=0
for ((at = 0; at < ${#targets[@]}; at += 2)); do
    running=()
    for target in "${targets[@]:at:2}"; do
        fuzz "$target" &
        running+=($!)
    done
    for process in "${running[@]}"; do
        wait "$process" || failed=1
    done
done
exit $failed
