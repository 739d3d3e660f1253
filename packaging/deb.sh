#!/usr/bin/env bash
# Builds a Debian package out of a built program: the program, its manual pages, completions, and services for systemd.
#
#   cargo build --profile dist -p cascadia
#   packaging/deb.sh target/dist/cascadia OUT_FOLDER
#
# Prints the path of the package. Needs dpkg-deb; the same program gives the same bytes. COMPRESSION=gzip is faster than xz.
set -euo pipefail
[ $# -eq 2 ] || { sed -n '2,7s/^# \{0,1\}//p' "$0" >&2; exit 2; }
program=$(realpath "$1") out=$(realpath -m "$2")
cd "$(dirname "${BASH_SOURCE[0]}")"

version=$("$program" --version | cut -d' ' -f2)
architecture=$(dpkg --print-architecture)
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
chmod 755 "$root"
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}

install -Dm755 "$program" "$root/usr/bin/cascadia"
for service in debian/*.service; do
    install -Dm644 "$service" "$root/lib/systemd/system/$(basename "$service")"
done
install -Dm644 debian/serve.json "$root/etc/cascadia/serve.json"
install -Dm644 ../LICENSE "$root/usr/share/doc/cascadia/copyright"
for library in katex pdfjs; do
    install -Dm644 "../crates/server/third-party/$library/LICENSE" "$root/usr/share/doc/cascadia/copyright.$library"
done
"$program" man "$root/usr/share/man/man1"
gzip --no-name --best "$root"/usr/share/man/man1/*.1
completions() { install -d "$root/$(dirname "$2")" && "$program" completions "$1" >"$root/$2"; }
completions bash usr/share/bash-completion/completions/cascadia
completions zsh usr/share/zsh/vendor-completions/_cascadia
completions fish usr/share/fish/vendor_completions.d/cascadia.fish

install -d "$root/DEBIAN"
echo /etc/cascadia/serve.json >"$root/DEBIAN/conffiles"
sed "s/@VERSION@/$version/; s/@ARCHITECTURE@/$architecture/; s/@SIZE@/$(du -sk --apparent-size "$root" | cut -f1)/" \
    debian/control >"$root/DEBIAN/control"
(cd "$root" && find usr lib etc -type f -print0 | sort -z | xargs -0 md5sum >DEBIAN/md5sums)

mkdir -p "$out"
package="$out/cascadia_${version}_$architecture.deb"
dpkg-deb --root-owner-group -Z"${COMPRESSION:-xz}" --build "$root" "$package" >/dev/null
echo "$package"
