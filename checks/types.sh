#!/usr/bin/env bash
# Type-checks the program, and on Windows the tests too, for the systems that it is not built on here: what is written for them
# compiles. Installs the targets' standard libraries, and says so where it cannot.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

types() { # types TARGET OPTIONS...
    local target=$1 name=${1//-/_}
    shift
    rustup target list --installed | grep -qx "$target" || rustup target add "$target" >/dev/null 2>&1 || {
        echo "$target is not checked; it cannot be installed (rustup target add $target)"
        return
    }
    # C code of dependencies is left out: nothing is linked, and there need be no compiler and no headers for that system.
    env "CC_$name=true" "AR_$name=true" RUSTFLAGS="-D warnings" \
        cargo check --locked --release --workspace --exclude cascadia-fuzz --target "$target" --quiet "$@"
}

types x86_64-pc-windows-gnu --all-targets
types aarch64-apple-darwin
