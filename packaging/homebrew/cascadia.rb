class Cascadia < Formula
  desc "Runs open large language models on CPUs, alone and across a fleet of PCs"
  homepage "@RELEASE@"
  version "@VERSION@"
  license "@LICENSE@"

  on_macos do
    on_arm do
      url "@RELEASE@/cascadia-@VERSION@-aarch64-apple-darwin.tar.gz"
      sha256 "@SHA256 aarch64-apple-darwin.tar.gz@"
    end
    on_intel do
      url "@RELEASE@/cascadia-@VERSION@-x86_64-apple-darwin.tar.gz"
      sha256 "@SHA256 x86_64-apple-darwin.tar.gz@"
    end
  end
  on_linux do
    on_arm do
      url "@RELEASE@/cascadia-@VERSION@-aarch64-unknown-linux-musl.tar.gz"
      sha256 "@SHA256 aarch64-unknown-linux-musl.tar.gz@"
    end
    on_intel do
      url "@RELEASE@/cascadia-@VERSION@-x86_64-unknown-linux-musl.tar.gz"
      sha256 "@SHA256 x86_64-unknown-linux-musl.tar.gz@"
    end
  end

  def install
    bin.install "cascadia"
    man1.install Dir["man/*.1"]
    bash_completion.install "completions/cascadia.bash" => "cascadia"
    zsh_completion.install "completions/cascadia.zsh" => "_cascadia"
    fish_completion.install "completions/cascadia.fish"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/cascadia --version")
  end
end
