#!/usr/bin/env bash
# Packs a built program for download: the program, its licence, manual pages and completions, under one folder.
#
#   packaging/archive.sh PROGRAM TARGET OUT_FOLDER
#   packaging/archive.sh target/x86_64-unknown-linux-musl/dist/cascadia x86_64-unknown-linux-musl out
#
# TARGET is a Rust target; a Windows program goes into a .zip, any other into a .tar.gz. Prints the path of the archive.
# Where the program does not run here, DOCUMENTED_BY names one of the same version that does. The same program gives the
# same bytes.
set -euo pipefail
[ $# -eq 3 ] || { sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2; }
program=$(realpath "$1") target=$2 out=$(realpath -m "$3") speaker=$(realpath "${DOCUMENTED_BY:-$1}")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
time=$(git log -1 --format=%ct 2>/dev/null || echo 0)

name="cascadia-$("$speaker" --version | cut -d' ' -f2)-$target"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root="$work/$name"
mkdir -p "$root/completions" "$out"

install -m755 "$program" "$root/$(basename "$program")"
install -m644 LICENSE README.md "$root"
"$speaker" man "$root/man" >/dev/null
for shell in bash zsh fish powershell; do
    "$speaker" completions "$shell" >"$root/completions/cascadia.$shell"
done
find "$root" -exec touch --no-dereference --date="@$time" {} +

case $target in
*windows*) archive="$out/$name.zip" && rm -f "$archive" && (cd "$work" && find "$name" | sort | zip -qX "$archive" -@) ;;
*) archive="$out/$name.tar.gz" && tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner -c "$name" | gzip -9n >"$archive" ;;
esac
echo "$archive"
