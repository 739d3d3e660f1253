//! The disk tier alone: what it keeps comes back as it was or not at all, within limits, whatever the disk does.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use cascadia_engine::service::schedule::{Block, Fetched, PageTier, PrefixKey};
use cascadia_engine::service::spill::{Spill, SpillStatus, SpillWriter};
use cascadia_model::{AdapterId, PageBytes, PageClass, PageId, PerClass, StageError};

use crate::disk::{Operation, TestDisk};
use crate::hash_model::Random;

/// Pages whose bytes are all the same.
#[derive(Default)]
struct TestPages(Mutex<BTreeMap<(PageClass, PageId), Vec<u8>>>);

impl PageBytes for TestPages {
    fn page_bytes(&self, class: PageClass) -> usize {
        match class {
            PageClass::Full => 300,
            PageClass::Window => 100,
            PageClass::Tail => 50,
        }
    }

    fn copy_page(&self, class: PageClass, page: PageId) -> Vec<u8> {
        self.0.lock().unwrap()[&(class, page)].clone()
    }

    fn fill_page(&self, class: PageClass, page: PageId, bytes: &[u8]) -> Result<(), StageError> {
        assert_eq!(bytes.len(), self.page_bytes(class));
        self.0.lock().unwrap().insert((class, page), bytes.to_vec());
        Ok(())
    }

    fn give_back_page(&self, class: PageClass, page: PageId) -> Result<(), StageError> {
        self.0.lock().unwrap().remove(&(class, page));
        Ok(())
    }
}

struct Bench {
    tier: Spill,
    writer: SpillWriter,
    disk: Arc<TestDisk>,
    pages: Arc<TestPages>,
}

impl Bench {
    fn new(bytes: u64, queue_bytes: u64) -> Bench {
        let (disk, pages) = (Arc::new(TestDisk::default()), Arc::new(TestPages::default()));
        let (tier, writer) = disk.tier(Arc::clone(&pages) as Arc<dyn PageBytes>, (bytes, queue_bytes));
        Bench { tier, writer, disk, pages }
    }

    /// A page that holds `content` is given up.
    fn keep(&mut self, block: Block<'_>, content: u8) {
        let bytes = vec![content; self.pages.page_bytes(block.class)];
        self.pages.fill_page(block.class, 0, &bytes).unwrap();
        self.tier.keep(block, 0);
    }

    /// The same, and it is written.
    fn write(&mut self, block: Block<'_>, content: u8) {
        self.keep(block, content);
        self.writer.work();
    }

    /// What a page holds that was filled with what was kept.
    fn fetch(&mut self, block: Block<'_>) -> Result<u8, Fetched> {
        let nothing = vec![0; self.pages.page_bytes(block.class)];
        self.pages.fill_page(block.class, 1, &nothing).unwrap();
        let fetched = self.tier.fetch(block, 1);
        let bytes = self.pages.copy_page(block.class, 1);
        assert!(bytes.iter().all(|byte| *byte == bytes[0]), "a part of a page");
        assert_eq!(fetched == Fetched::Filled, bytes[0] != 0, "a page that is not filled stays as it is");
        if fetched == Fetched::Filled { Ok(bytes[0]) } else { Err(fetched) }
    }

    fn status(&self) -> SpillStatus {
        self.tier.handle().status().expect("the tier is there")
    }

    /// Which pages of a text are there, of layers that read all of it.
    fn find(&mut self, tokens: &[u32]) -> Vec<bool> {
        let kept = self.tier.find(owner(1), tokens, 0);
        kept.iter().map(|kept| kept[PageClass::Full]).collect()
    }

    /// The name of the only file.
    fn file(&self) -> String {
        let state = self.disk.state();
        assert_eq!(state.files.len(), 1);
        state.files.keys().next().unwrap().clone()
    }
}

fn owner(salt: u64) -> PrefixKey {
    PrefixKey { salt, ..PrefixKey::default() }
}

fn text(seed: u32, pages: u32) -> Vec<u32> {
    (0..64 * pages).map(|at| at * 7 + seed * 1000).collect()
}

fn full(tokens: &[u32]) -> Block<'_> {
    Block { owner: owner(1), tokens, class: PageClass::Full }
}

/// What is on disk, and what is lost.
fn counts(status: &SpillStatus) -> [u64; 6] {
    [status.records, status.written, status.dropped, status.restored, status.damaged, status.unreadable]
}

#[test]
fn a_page_comes_back_as_it_was() {
    let mut bench = Bench::new(1 << 20, 1 << 20);
    let tokens = text(1, 2);
    for (class, content) in PageClass::ALL.into_iter().zip(1..) {
        bench.keep(Block { class, ..full(&tokens) }, content);
        assert_eq!(bench.fetch(Block { class, ..full(&tokens) }), Ok(content), "it waits to be written");
    }
    assert_eq!(bench.status().waiting_bytes, 450 + 3 * (49 + 4 * 128));
    bench.writer.work();
    assert_eq!((bench.status().waiting_bytes, bench.disk.state().files.len()), (0, 3));
    for (class, content) in PageClass::ALL.into_iter().zip(1..) {
        assert_eq!(bench.fetch(Block { class, ..full(&tokens) }), Ok(content), "it was written");
    }
    let status = bench.status();
    assert_eq!((counts(&status), status.restored_bytes), ([3, 3, 0, 6, 0, 0], 900));
    assert_eq!((status.bytes, status.problem), (3 * 4096, None));
    // What is there is not written again.
    bench.write(full(&tokens), 9);
    assert_eq!((bench.status().written, bench.fetch(full(&tokens))), (3, Ok(1)));
}

#[test]
fn no_other_text_or_tenant_gets_a_page() {
    let mut bench = Bench::new(1 << 20, 1 << 20);
    let tokens = text(1, 2);
    bench.write(full(&tokens), 7);
    let mut changed = tokens.clone();
    changed[0] += 1;
    let others = [
        full(&changed),
        full(&tokens[..64]),
        Block { class: PageClass::Window, ..full(&tokens) },
        Block { owner: owner(2), ..full(&tokens) },
        Block { owner: PrefixKey { adapter: Some(AdapterId([1; 32])), ..owner(1) }, ..full(&tokens) },
    ];
    for other in others {
        assert_eq!(bench.fetch(other), Err(Fetched::Missing), "{other:?}");
    }
    assert_eq!(bench.fetch(full(&tokens)), Ok(7));
    let none = PerClass::new(|_| false);
    assert_eq!(bench.tier.find(owner(2), &tokens, 0), [none, none]);
}

#[test]
fn a_record_that_is_not_what_was_written_is_a_miss() {
    let mut bench = Bench::new(1 << 20, 1 << 20);
    let tokens = text(1, 1);
    let mut damaged = 0;
    let mut check = |bench: &mut Bench, what: String, damage: &dyn Fn(&mut Vec<u8>)| {
        bench.write(full(&tokens), 5);
        let name = bench.file();
        damage(bench.disk.state().files.get_mut(&name).unwrap());
        assert_eq!(bench.fetch(full(&tokens)), Err(Fetched::Missing), "{what}");
        damaged += 1;
        assert_eq!(bench.status().damaged, damaged, "{what}");
        bench.writer.work();
        assert!(bench.disk.state().files.is_empty(), "{what}: it is removed");
        assert_eq!(bench.status().bytes, 0, "{what}");
    };
    let length = 40 + 49 + 4 * 64 + 300 + 16;
    for at in 0..length {
        check(&mut bench, format!("byte {at}"), &|file| file[at] ^= 1 << (at % 8));
        check(&mut bench, format!("{at} bytes"), &|file| file.truncate(at));
    }
    check(&mut bench, "a byte more".to_owned(), &|file| file.push(0));
    check(&mut bench, "nothing but zeros".to_owned(), &|file| file.fill(0));
    bench.write(full(&tokens), 5);
    let name = bench.file();
    assert_eq!(bench.disk.state().files[&name].len(), length, "every byte was another once");
    assert_eq!(bench.fetch(full(&tokens)), Ok(5));
}

#[test]
fn records_that_changed_places_are_misses() {
    let texts = [text(1, 1), text(2, 1), text(1, 2)];
    let mut blocks: Vec<Block<'_>> = texts.iter().map(|tokens| full(tokens)).collect();
    blocks.push(Block { owner: owner(2), ..full(&texts[0]) });
    blocks.push(Block { class: PageClass::Tail, ..full(&texts[0]) });
    for (one, other) in (0..blocks.len()).flat_map(|one| (0..one).map(move |other| (one, other))) {
        let mut bench = Bench::new(1 << 20, 1 << 20);
        let mut names = Vec::new();
        for (content, block) in (1..).zip(&blocks) {
            let before: Vec<String> = bench.disk.state().files.keys().cloned().collect();
            bench.write(*block, content);
            names.extend(bench.disk.state().files.keys().filter(|name| !before.contains(name)).cloned());
        }
        let mut state = bench.disk.state();
        let [first, second] = [one, other].map(|at| state.files[&names[at]].clone());
        state.files.insert(names[one].clone(), second);
        state.files.insert(names[other].clone(), first);
        drop(state);
        for (at, block) in blocks.iter().enumerate() {
            let expected = if at == one || at == other { Err(Fetched::Missing) } else { Ok(at as u8 + 1) };
            assert_eq!(bench.fetch(*block), expected, "{one} and {other}, {at}");
        }
        assert_eq!(bench.status().damaged, 2);
    }
}

#[test]
fn a_disk_that_does_not_write_is_left_alone_for_a_while() {
    let mut bench = Bench::new(1 << 20, 1 << 20);
    let texts = [text(1, 1), text(2, 1), text(3, 1)];
    bench.disk.state().failing = vec![Operation::Write];
    bench.keep(full(&texts[0]), 1);
    bench.keep(full(&texts[1]), 2);
    bench.writer.work();
    let status = bench.status();
    assert_eq!(counts(&status), [0, 0, 2, 0, 0, 0], "what waited behind it is lost too");
    assert!(status.problem.is_some_and(|problem| problem.contains("cannot write a file")));
    let state = bench.disk.state();
    assert!(state.files.is_empty(), "a part of a file is removed");
    let calls = state.calls;
    drop(state);
    bench.disk.state().now = 4.9;
    bench.write(full(&texts[0]), 1);
    assert_eq!((bench.disk.state().calls, bench.status().dropped), (calls, 3), "it is not tried");
    bench.disk.state().now = 5.0;
    bench.write(full(&texts[0]), 1);
    assert_eq!((bench.status().dropped, bench.status().problem.is_some()), (4, true), "it is tried, and fails again");
    bench.disk.state().failing.clear();
    bench.disk.state().now = 10.0;
    bench.write(full(&texts[0]), 1);
    assert_eq!((bench.status().written, bench.status().problem), (1, None));
    assert_eq!(bench.fetch(full(&texts[0])), Ok(1));
}

#[test]
fn what_cannot_be_removed_still_counts() {
    let mut bench = Bench::new(2 * 4096, 1 << 20);
    let texts = [text(1, 1), text(2, 1), text(3, 1)];
    bench.disk.state().failing = vec![Operation::Write, Operation::Remove];
    bench.write(full(&texts[0]), 1);
    assert_eq!((bench.status().bytes, bench.disk.state().files.len()), (4096, 1), "a part of a file is left");
    assert_eq!(bench.fetch(full(&texts[0])), Err(Fetched::Missing));
    bench.disk.state().failing.clear();
    bench.disk.state().now = 5.0;
    bench.writer.work();
    assert_eq!((bench.status().bytes, bench.disk.state().files.len()), (0, 0));
    // A file that has to make room and cannot.
    bench.write(full(&texts[0]), 1);
    bench.write(full(&texts[1]), 2);
    bench.disk.state().failing = vec![Operation::Remove];
    bench.write(full(&texts[2]), 3);
    assert!(bench.status().problem.is_some_and(|problem| problem.contains("cannot remove a file")));
    assert_eq!((bench.status().bytes, bench.disk.state().bytes()), (2 * 4096, 2 * 4096));
    assert_eq!(bench.fetch(full(&texts[1])), Ok(2), "what is there can be read");
    bench.disk.state().failing.clear();
    bench.disk.state().now = 10.0;
    bench.write(full(&texts[2]), 3);
    assert_eq!((bench.status().problem.clone(), bench.fetch(full(&texts[2]))), (None, Ok(3)));
    assert_eq!(bench.disk.state().most_bytes, 2 * 4096);
}

#[test]
fn a_disk_that_does_not_read_is_left_alone_for_a_while() {
    let mut bench = Bench::new(1 << 20, 1 << 20);
    let texts = [text(1, 1), text(2, 1)];
    bench.write(full(&texts[0]), 1);
    bench.write(full(&texts[1]), 2);
    bench.disk.state().failing = vec![Operation::Read];
    assert_eq!(bench.fetch(full(&texts[0])), Err(Fetched::Missing));
    let status = bench.status();
    assert_eq!((status.unreadable, status.damaged), (1, 0));
    assert!(status.problem.is_some_and(|problem| problem.contains("cannot read a file")));
    assert!(bench.find(&texts[1]).is_empty(), "nothing is looked for");
    bench.disk.state().failing.clear();
    bench.disk.state().now = 5.0;
    assert_eq!((bench.find(&texts[0]), bench.find(&texts[1])), (vec![false], vec![true]));
    assert_eq!((bench.fetch(full(&texts[1])), bench.status().problem), (Ok(2), None));
    // Somebody removes everything.
    bench.disk.state().files.clear();
    assert_eq!(bench.fetch(full(&texts[1])), Err(Fetched::Missing));
    assert_eq!(bench.status().unreadable, 2);
}

#[test]
fn a_flood_stays_within_the_limits() {
    for seed in 0..20 {
        let mut random = Random(seed);
        let mut bench = Bench::new(20 * 4096, 4000);
        for number in 0..400 {
            let tokens = text(number, 1 + random.below(3) as u32);
            let class = PageClass::ALL[random.below(3) as usize];
            bench.keep(Block { class, ..full(&tokens) }, 1);
            let status = bench.status();
            assert!(status.waiting_bytes <= 4000, "seed {seed}: {} bytes wait", status.waiting_bytes);
            if random.one_in(4) {
                bench.writer.work();
                let (status, state) = (bench.status(), bench.disk.state());
                assert_eq!(status.bytes, state.bytes(), "seed {seed}");
                assert_eq!(status.records, state.files.len() as u64, "seed {seed}");
            }
        }
        let status = bench.status();
        assert!(bench.disk.state().most_bytes <= 20 * 4096, "seed {seed}: {}", bench.disk.state().most_bytes);
        assert!(status.written > 100 && status.dropped > 20, "seed {seed}: {status:?}");
    }
}

#[test]
fn a_record_that_is_too_large_is_not_kept() {
    let mut bench = Bench::new(4096, 1 << 20);
    let long = text(1, 20);
    bench.write(full(&long), 1);
    assert_eq!(counts(&bench.status()), [0, 0, 1, 0, 0, 0]);
    let mut bench = Bench::new(1 << 20, 100);
    bench.keep(full(&long), 1);
    assert!(bench.status().waiting_bytes > 100, "one may always wait");
    bench.keep(full(&text(2, 1)), 1);
    assert_eq!(bench.status().dropped, 1);
}

#[test]
fn what_was_used_longest_ago_makes_room() {
    let mut bench = Bench::new(4 * 4096, 1 << 20);
    let (one, two, three) = (text(1, 2), text(2, 2), text(3, 1));
    // Memory gives up the last page of a text first.
    for tokens in [&one, &two] {
        bench.write(full(tokens), 1);
        bench.write(full(&tokens[..64]), 1);
    }
    assert_eq!(bench.find(&one), [true, true]);
    bench.write(full(&three), 1);
    assert_eq!(
        (bench.find(&one), bench.find(&two)),
        (vec![true, true], vec![true, false]),
        "a text loses its end first"
    );
    bench.write(full(&text(4, 1)), 1);
    assert_eq!((bench.find(&three), bench.find(&one)), (vec![false], vec![true, true]));
}

#[test]
fn nothing_is_used_after_everything_was_forgotten() {
    let mut bench = Bench::new(1 << 20, 1 << 20);
    let (one, two) = (text(1, 1), text(2, 1));
    bench.write(full(&one), 1);
    bench.keep(full(&two), 2);
    bench.tier.forget();
    for tokens in [&one, &two] {
        assert_eq!((bench.find(tokens), bench.fetch(full(tokens))), (vec![false], Err(Fetched::Missing)));
    }
    bench.writer.work();
    assert!(bench.disk.state().files.is_empty());
    bench.write(full(&one), 3);
    assert_eq!(bench.fetch(full(&one)), Ok(3));
}

#[test]
fn a_step_waits_for_few_pages() {
    let mut bench = Bench::new(1 << 20, 1 << 20);
    let texts = [text(1, 1), text(2, 1)];
    bench.write(full(&texts[0]), 1);
    bench.write(full(&texts[1]), 2);
    bench.disk.state().read_seconds = 0.03;
    bench.tier.begin_plan();
    assert_eq!((bench.fetch(full(&texts[0])), bench.fetch(full(&texts[1]))), (Ok(1), Err(Fetched::Later)));
    bench.tier.begin_plan();
    assert_eq!(bench.fetch(full(&texts[1])), Ok(2));
    let one = PerClass::new(|class| usize::from(class == PageClass::Full));
    bench.tier.handle().set_row_seconds(0.001);
    assert!(bench.tier.pays(&one, 64), "0.03 s against 0.064 s");
    bench.tier.handle().set_row_seconds(0.0001);
    assert!(!bench.tier.pays(&one, 64), "0.03 s against 0.0064 s");
    bench.disk.state().now += 30.0;
    assert!(bench.tier.pays(&one, 64), "it is measured again after a while");
}
