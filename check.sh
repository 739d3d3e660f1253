#!/usr/bin/env bash
# Every check of the project; CI runs exactly this. Sets up what it needs itself and stops at the first failure.
# Needs Rust (rustup), a C and a C++ compiler, Python 3.11 or newer with venv, and the network for the first run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
exec </dev/null

step() { # step NAME COMMAND...: run, and say how long it took
    local name=$1 start=$SECONDS
    shift
    printf '\n== %s: %s\n' "$name" "$*"
    "$@" || { printf '\n== %s FAILED after %d s\n' "$name" $((SECONDS - start)) >&2; exit 1; }
    printf '== %s: %d s\n' "$name" $((SECONDS - start))
}

python_environment() { # made once, and again when the pinned versions change
    cat checks/requirements.txt checks/templates.txt | cmp -s - .venv/requirements.txt && return
    # Joined by &&, because `set -e` does not reach into a function whose result is tested.
    rm -rf .venv &&
        python3 -m venv .venv &&
        .venv/bin/python -m pip install --quiet --disable-pip-version-check -r checks/requirements.txt &&
        .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r checks/templates.txt &&
        cat checks/requirements.txt checks/templates.txt >.venv/requirements.txt
}

documentation() {
    RUSTDOCFLAGS="-D warnings" cargo doc --locked --release --workspace --no-deps --quiet
}

features() { # the library compiles without warnings with each feature alone, and with none
    local feature
    for feature in "" server quantize fleet hub embedded-model cli; do
        echo "-- feature: ${feature:-none}"
        cargo clippy --locked --release -p cascadia --no-default-features --features "$feature" --quiet -- -D warnings ||
            return 1
    done
}

examples() { # they assert what they claim; the tests have built them
    local example
    for example in chat serve fleet; do
        "target/release/examples/$example" || return 1
    done
}

licences() { # the tidy test has checked deny.toml already; the tool itself says more where it is installed
    if command -v cargo-deny >/dev/null; then
        cargo deny check licenses bans sources
    else
        echo "cargo-deny is not installed; the tidy test has checked licences, bans and sources"
    fi
}

advisories() { # of dependencies, and whether they would be found
    python3 checks/advisories.py --self-test && python3 checks/advisories.py
}

chromium() { # for the check of the web page, which says that it is skipped where there is none
    command -v chromium >/dev/null && command -v chromedriver >/dev/null && return
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        { apt-get update && apt-get install -y --no-install-recommends chromium chromium-driver; } >/dev/null 2>&1 ||
            echo "chromium cannot be installed: the web page is not checked"
    else
        echo "chromium and chromium-driver are not installed: the web page is not checked"
    fi
}

# One profile throughout, so that dependencies are compiled once. The tests build the program and the examples too: a build of
# its own would resolve other features, and compile every crate twice.
step "python environment" python_environment
step "format" cargo fmt --all --check
step "lint" cargo clippy --locked --release --workspace --all-targets --features cascadia-fuzz/libfuzzer --quiet -- -D warnings
step "types for Windows and macOS" checks/types.sh
step "test" cargo test --locked --release --workspace --quiet
step "features" features
step "examples" examples
step "documentation" documentation
step "licences" licences
step "advisories" advisories
step "bill of materials" .venv/bin/python checks/sbom.py --validate
step "fuzz" fuzz/run.sh --seconds 10
step "coverage" python3 checks/coverage.py --check
step "chromium" chromium
for check in gguf_py llama_cpp reference_eval adapters store models smollm2 terminal package release evaluate tokenizing embeddings templates clients page load hostile attacks disk spill; do
    step "$check" .venv/bin/python "checks/$check.py"
done
printf '\n== all checks passed in %d s\n' "$SECONDS"
