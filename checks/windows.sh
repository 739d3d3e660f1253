#!/usr/bin/env bash
# The Windows program, built here and run under Wine: tests of the crates that have code for operating systems, then what the
# program answers beside the Linux program (checks/windows.py). Installs nothing; where something is missing it says what, and
# that it did nothing. No part of check.sh, because it takes half an hour; checks/types.sh is.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

target=x86_64-pc-windows-gnu
missing=()
rustup target list --installed | grep -qx "$target" || missing+=("the target (rustup target add $target)")
command -v x86_64-w64-mingw32-gcc >/dev/null || missing+=("a compiler and linker (apt-get install gcc-mingw-w64-x86-64)")
command -v wine >/dev/null || missing+=("Wine (apt-get install wine)")
[ -x .venv/bin/python ] || missing+=("the Python environment of check.sh")
if [ ${#missing[@]} -gt 0 ]; then
    printf 'the Windows program is not checked; missing: %s\n' "${missing[@]}"
    exit
fi

built=$(cargo metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
export WINEPREFIX=$built/wine WINEDEBUG=-all
wineboot --init >/dev/null 2>&1
# Old Wines lack the function that Rust's standard library gets random numbers from.
x86_64-w64-mingw32-gcc -shared -x c - -ladvapi32 -o "$WINEPREFIX/drive_c/windows/system32/bcryptprimitives.dll" <<'C'
__declspec(dllimport) unsigned char SystemFunction036(void *, unsigned long);
__declspec(dllexport) int ProcessPrng(void *buffer, unsigned long long length) { return SystemFunction036(buffer, length); }
C

export CARGO_TARGET_X86_64_PC_WINDOWS_GNU_RUNNER="timeout 900 wine"
cargo build --locked --release
cargo build --locked --release --target "$target"
for crate in kernels weights hub text engine; do
    cargo test --locked --release --target "$target" --package "cascadia-$crate" --lib --tests --quiet
done
BUILT=$built exec .venv/bin/python checks/windows.py
