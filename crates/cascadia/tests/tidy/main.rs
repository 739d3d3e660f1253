//! The house rules of STYLE.md, as far as a program can check them.

mod dependencies;
mod source;

use source::SourceFile;

/// Longest file and longest function, in lines.
const FILE_LIMIT: usize = 600;
const FUNCTION_LIMIT: usize = 70;
/// Longest example, in lines.
const EXAMPLE_LIMIT: usize = 60;

/// Files and functions over the limit, with their size. Numbers here only fall; new entries are not welcome.
/// A file is named by its path, a function by `path::name`.
const EXCEPTIONS: [(&str, usize); 0] = [];

/// Where `unsafe` may be written: files, and folders with a slash at the end.
const UNSAFE_ALLOWED: &[&str] = &[
    "crates/kernels/src/ops/",
    "crates/kernels/src/pool.rs",
    "crates/kernels/src/quantize/instruction_sets.rs",
    "crates/kernels/src/avx2/",
    "crates/kernels/src/avx512/",
    "crates/kernels/src/avx_vnni/",
    "crates/kernels/src/neon/",
    "crates/weights/src/mapped.rs",
    "crates/weights/src/os/",
    // An allocator that counts cannot be written without it.
    "crates/model/tests/allocation.rs",
    "crates/text/tests/grammar_memory.rs",
    "crates/text/tests/tokenizing_memory.rs",
    "crates/weights/tests/weights/counting_allocator.rs",
];

/// Crates that hold those files; every other library forbids unsafe code altogether.
const UNSAFE_CRATES: [&str; 2] = ["kernels", "weights"];

/// Families whose names belong to `crates/model/src/arch/` and nowhere else.
const FAMILIES: [&str; 8] = ["llama", "mistral", "qwen", "gemma", "mixtral", "deepseek", "falcon", "rainier"];

/// Where the names are data of a file format (vocabulary kinds) or of the product (its default model, help texts).
const FAMILIES_ALLOWED: [&str; 5] = [
    "crates/model/src/arch/",
    "crates/text/src/",
    "crates/quantize/src/convert/pre_tokenizer.rs",
    "crates/quantize/src/convert/tokenizer.rs",
    "crates/cascadia/src/",
];

/// Words that no identifier contains; the table in STYLE.md says what to write instead.
const BANNED_WORDS: &str = "quay harbour dock docked guest berth crew manners travel teller desk voice door doors \
    lively squeeze squeezed ticket shipment lookout impatience guess lane lanes";

/// Those that mean something in the arithmetic of vectors.
const VECTOR_WORDS: [&str; 2] = ["lane", "lanes"];

#[test]
fn every_file_says_what_it_holds() {
    check(&|file| match file.text.starts_with("//! ") {
        true => Vec::new(),
        false => vec!["does not open with a `//!` sentence".to_owned()],
    });
}

#[test]
fn files_of_the_page_say_what_they_hold_and_are_short() {
    check_all(&|file| {
        let opening = match file.path.rsplit_once('.') {
            _ if !file.path.starts_with("crates/server/web/") => return Vec::new(),
            Some((_, "js")) => "// ",
            Some((_, "css")) => "/* ",
            _ => "<!doctype html>\n<!-- ",
        };
        let mut problems = Vec::from_iter(too_long(&file.path, file.text.lines().count(), FILE_LIMIT));
        if !file.text.starts_with(opening) {
            problems.push("does not open with a comment that says what it holds".to_owned());
        }
        problems
    });
}

#[test]
fn files_and_functions_are_short() {
    check(&|file| {
        let mut problems = Vec::from_iter(too_long(&file.path, file.text.lines().count(), FILE_LIMIT));
        for (name, _, lines) in source::functions(&file.code) {
            problems.extend(too_long(&format!("{}::{name}", file.path), lines, FUNCTION_LIMIT));
        }
        problems
    });
}

fn too_long(name: &str, lines: usize, limit: usize) -> Option<String> {
    let known = EXCEPTIONS.iter().find(|(exception, _)| *exception == name).map(|(_, known)| *known);
    match known {
        Some(known) if lines < known => Some(format!("{name} shrank to {lines} lines: lower or remove its exception")),
        _ if lines > known.unwrap_or(limit) => Some(format!("{name} has {lines} lines, limit {limit}")),
        _ => None,
    }
}

#[test]
fn unsafe_code_is_where_it_may_be_and_explained() {
    check(&|file| {
        let raw: Vec<&str> = file.text.lines().collect();
        let mut problems = Vec::new();
        for (number, line) in file.code.lines().enumerate().filter(|(_, line)| has_word(line, "unsafe")) {
            if !UNSAFE_ALLOWED.iter().any(|allowed| is_or_is_under(&file.path, allowed)) {
                problems.push(format!("line {}: unsafe code outside the listed files", number + 1));
            }
            // A declaration states its contract under `# Safety`; a use says why the contract holds.
            let declares =
                line.contains("unsafe fn") || line.contains("unsafe extern") || line.contains("unsafe trait");
            let above = &raw[number.saturating_sub(8)..=number];
            if !declares && !above.iter().any(|line| line.contains("SAFETY:")) {
                problems.push(format!("line {}: unsafe without a SAFETY: comment above it", number + 1));
            }
        }
        problems
    });
}

#[test]
fn libraries_forbid_unsafe_code() {
    check(&|file| {
        let mut parts = file.path.split('/').skip(1);
        let (folder, is_root) = (parts.next().unwrap_or_default(), file.path.ends_with("/src/lib.rs"));
        match is_root && !UNSAFE_CRATES.contains(&folder) && !file.code.contains("#![forbid(unsafe_code)]") {
            true => vec!["lacks #![forbid(unsafe_code)]".to_owned()],
            false => Vec::new(),
        }
    });
}

#[test]
fn model_names_stay_in_arch() {
    check(&|file| {
        let is_source = file.path.starts_with("crates/") && file.path.contains("/src/");
        if !is_source || FAMILIES_ALLOWED.iter().any(|allowed| is_or_is_under(&file.path, allowed)) {
            return Vec::new();
        }
        let mut problems = Vec::new();
        let product = file.code_and_literals.split("#[cfg(test)]").next().unwrap_or_default();
        for (number, line) in product.lines().enumerate() {
            // The name of another program is not the name of a family.
            let line = line.to_lowercase().replace("llama.cpp", "").replace("llama-gguf-split", "");
            problems.extend(FAMILIES.iter().filter(|family| starts_a_word(&line, family)).map(|family| {
                format!("line {}: `{family}`: say the difference as data in crates/model/src/arch", number + 1)
            }));
        }
        problems
    });
}

#[test]
fn identifiers_use_the_words_of_the_field() {
    check(&|file| {
        let is_kernel = file.path.starts_with("crates/kernels/");
        let is_banned = |word: &str| {
            BANNED_WORDS.split(' ').any(|banned| banned == word) && !(is_kernel && VECTOR_WORDS.contains(&word))
        };
        let identifiers = |line: &str| -> Vec<String> {
            line.split(|c: char| !c.is_alphanumeric() && c != '_').map(str::to_owned).collect()
        };
        let mut problems = Vec::new();
        for (number, line) in file.code.lines().enumerate() {
            for identifier in identifiers(line) {
                let banned = source::words(&identifier).into_iter().find(|word| is_banned(word));
                problems.extend(banned.map(|word| {
                    format!("line {}: `{identifier}`: `{word}` is a private metaphor, see STYLE.md", number + 1)
                }));
            }
        }
        problems
    });
}

#[test]
fn only_os_modules_read_the_files_of_a_system() {
    check(&|file| {
        let is_source = file.path.starts_with("crates/") && file.path.contains("/src/");
        let is_os = file.path.ends_with("/os.rs") || file.path.contains("/os/");
        let folders = ["proc/", "sys/class/", "sys/devices/"];
        let literals = || folders.iter().filter(|folder| file.code_and_literals.contains(&format!("\"/{folder}")));
        let relative = || folders.iter().filter(|folder| file.code_and_literals.contains(&format!("\"{folder}")));
        match is_source && !is_os {
            true => {
                literals().chain(relative()).map(|folder| format!("reads /{folder} outside an os module")).collect()
            }
            false => Vec::new(),
        }
    });
}

#[test]
fn nothing_is_left_unfinished() {
    // Split, so that this file does not contain them.
    let marks = ["TO_DO", "FIX_ME", "XX_X", "db_g!(", "to_do!(", "unimple_mented!("].map(|mark| mark.replace('_', ""));
    let is_program = |path: &str| [".rs", ".py", ".sh", ".toml"].iter().any(|end| path.ends_with(end));
    check_all(&|file| {
        let found = marks.iter().filter(|mark| is_program(&file.path) && file.text.contains(*mark));
        found.map(|mark| format!("contains {mark}: finish it or file an issue")).collect()
    });
}

#[test]
fn no_path_of_one_machine() {
    let paths = ["/wo_rk/", "/ro_ot/"].map(|path| path.replace('_', ""));
    check_all(&|file| {
        let found = paths.iter().filter(|path| file.text.contains(*path));
        found.map(|path| format!("names {path}, which exists on one machine only")).collect()
    });
}

#[test]
fn crates_use_what_lies_below_them() {
    report(dependencies::layers(&source::files()));
}

#[test]
fn features_and_examples_are_checked() {
    report(dependencies::features(&source::files()));
}

#[test]
fn examples_are_short() {
    check(&|file| {
        let is_example = file.path.starts_with("crates/cascadia/examples/");
        let lines = file.text.lines().count();
        Vec::from_iter((is_example && lines > EXAMPLE_LIMIT).then(|| format!("{lines} lines, limit {EXAMPLE_LIMIT}")))
    });
}

#[test]
fn packages_obey_deny_toml() {
    report(dependencies::packages());
}

/// Runs a rule on every Rust file and fails with the list of what it found.
fn check(rule: &dyn Fn(&SourceFile) -> Vec<String>) {
    check_all(&|file| if file.path.ends_with(".rs") { rule(file) } else { Vec::new() });
}

/// Runs a rule on every text file.
fn check_all(rule: &dyn Fn(&SourceFile) -> Vec<String>) {
    let files = source::files();
    assert!(files.iter().any(|file| file.path == "crates/cascadia/tests/tidy/main.rs"), "the walk missed this file");
    report(files.iter().flat_map(|file| rule(file).into_iter().map(|p| format!("{}: {p}", file.path))).collect());
}

fn report(problems: Vec<String>) {
    assert!(problems.is_empty(), "{} house rules broken:\n{}", problems.len(), problems.join("\n"));
}

fn is_or_is_under(path: &str, allowed: &str) -> bool {
    path == allowed || (allowed.ends_with('/') && path.starts_with(allowed))
}

fn has_word(line: &str, word: &str) -> bool {
    line.split(|c: char| !c.is_alphanumeric() && c != '_').any(|part| part == word)
}

fn starts_a_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| !line[..at].ends_with(|c: char| c.is_alphabetic()))
}
