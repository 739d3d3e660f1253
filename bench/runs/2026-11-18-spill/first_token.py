"""Time to the first token of three conversations that take turns in a KV cache with room for one, with and without --spill."""
import pathlib
import statistics
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "checks"))
import serving  # noqa: E402


def run(*flags):
    with serving.Server("--parallel", 1, "--ctx", 4096, "--threads", 2, *flags, tenants=1) as server:
        texts, times, answers = [serving.text(2400, seed) for seed in range(3)], [], []
        for turn in range(4):
            for prompt in texts:
                first, usage, answer = server.stream({"prompt": prompt, "max_tokens": 8, "temperature": 0})
                answers.append(answer)
                times += [first] if turn else []
        print(flags[:1], usage, "median s to first token", round(statistics.median(times), 3), [round(t, 3) for t in times])
        print({name: value for name, value in server.metrics().items() if name.startswith(("spill", "prefix_tokens"))})
        return answers


with tempfile.TemporaryDirectory() as folder:
    without = run()
    print("same", without == run("--spill", folder + "/s", "--spill-size", "4G"))
