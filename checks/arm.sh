#!/usr/bin/env bash
# The kernels of 64-bit ARM, built here and run under an emulator: all tests of the crate, among them the comparison of
# NEON with the scalar specification. Installs nothing; where something is missing it says what, and that it did nothing.
# No part of check.sh, because it takes minutes. `checks/arm.sh --test parity` runs the comparison alone.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

target=aarch64-unknown-linux-gnu
emulator=$(command -v qemu-aarch64 || command -v qemu-aarch64-static || true)
missing=()
rustup target list --installed | grep -qx "$target" || missing+=("the target (rustup target add $target)")
command -v aarch64-linux-gnu-gcc >/dev/null || missing+=("a linker (apt-get install gcc-aarch64-linux-gnu)")
[ -n "$emulator" ] || missing+=("an emulator (apt-get install qemu-user)")
if [ ${#missing[@]} -gt 0 ]; then
    printf 'the ARM kernels are not checked; missing: %s\n' "${missing[@]}"
    exit
fi

export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
# Every instruction that the emulator knows, dot products among them.
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="$emulator -L /usr/aarch64-linux-gnu -cpu max"
exec cargo test --locked --release --package cascadia-kernels --target "$target" "$@"
