#!/bin/sh
# Installs cascadia for this user out of a release: fetches the archive for this system, compares its checksum with the
# release's list, and puts the program into ~/.local/bin. Run it again to update; delete the program to remove it.
#
#   sh install.sh
#
# CASCADIA_RELEASE   address of the folder with the archives and SHA256SUMS
# CASCADIA_BIN       where the program goes (~/.local/bin)
set -eu

release=${CASCADIA_RELEASE:-@RELEASE@}
bin=${CASCADIA_BIN:-$HOME/.local/bin}

fail() {
    echo "install.sh: $*" >&2
    exit 1
}

# The whole script is read before anything runs, however slowly it arrives.
main() {
    case $release in @*) fail "set CASCADIA_RELEASE to the address of a release" ;; esac
    case $(uname -s) in
    Linux) system=unknown-linux-musl ;;
    Darwin) system=apple-darwin ;;
    *) fail "there is no program for $(uname -s) here; on Windows use winget or the .zip of the release" ;;
    esac
    case $(uname -m) in
    x86_64 | amd64) target=x86_64-$system ;;
    aarch64 | arm64) target=aarch64-$system ;;
    *) fail "there is no program for $(uname -m); build it with: cargo install --locked --path crates/cascadia" ;;
    esac

    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    fetch "$release/SHA256SUMS" "$folder/SHA256SUMS"
    archive=$(sed -n "s/^[0-9a-f]\{64\}  \(cascadia-[0-9A-Za-z.+-]*-$target\.tar\.gz\)\$/\1/p" "$folder/SHA256SUMS")
    [ -n "$archive" ] || fail "the release has no program for $target"
    echo "Fetching $archive"
    fetch "$release/$archive" "$folder/$archive"

    wanted=$(sed -n "s/^\([0-9a-f]\{64\}\)  $archive\$/\1/p" "$folder/SHA256SUMS")
    if command -v sha256sum >/dev/null; then
        found=$(sha256sum "$folder/$archive" | cut -d' ' -f1)
    else
        found=$(shasum -a 256 "$folder/$archive" | cut -d' ' -f1)
    fi
    [ "$wanted" = "$found" ] || fail "$archive has checksum $found, the release says $wanted; nothing was installed"

    tar -C "$folder" -xzf "$folder/$archive"
    mkdir -p "$bin"
    # Under another name first: a program that runs keeps its file.
    cp "$folder/${archive%.tar.gz}/cascadia" "$bin/.cascadia.new"
    chmod 755 "$bin/.cascadia.new"
    mv "$bin/.cascadia.new" "$bin/cascadia"
    echo "Installed $("$bin/cascadia" --version) as $bin/cascadia"
    case :$PATH: in
    *":$bin:"*) echo "Try: cascadia run smollm2 \"Why is the sky blue?\"" ;;
    *) echo "Add $bin to your PATH, then try: cascadia run smollm2 \"Why is the sky blue?\"" ;;
    esac
}

fetch() {
    if command -v curl >/dev/null; then
        curl -fsSL --retry 3 -o "$2" "$1" || fail "$1 cannot be fetched"
    elif command -v wget >/dev/null; then
        wget -qO "$2" "$1" || fail "$1 cannot be fetched"
    else
        fail "neither curl nor wget is installed"
    fi
}

main "$@"
