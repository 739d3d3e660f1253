//! Attention gives the same bits however its heads are shared among threads.

use cascadia_kernels::{Attention, AttentionScratch, CachedRows, KvPage, Ops, Pool, RowPlace, Stored};

const PAGE: usize = 16;
const HEAD: usize = 32;

fn numbers(count: usize, seed: u32) -> Vec<f32> {
    (0..count as u32).map(|index| ((index.wrapping_mul(2_654_435_761) ^ seed) >> 8) as f32 / 1e7 - 0.8).collect()
}

#[test]
fn any_number_of_threads_gives_the_same_bits() {
    let check = |heads: usize, kv_heads: usize, rows: usize| {
        let shape = Attention {
            heads,
            kv_heads,
            head: HEAD,
            value_head: HEAD,
            scale: 0.2,
            soft_cap: None,
            slopes: None,
            sinks: None,
            window: None,
            sees_later: false,
            page_tokens: PAGE,
        };
        let (depth, pages) = (3 * PAGE + 5, 4);
        let queries = numbers(rows * heads * HEAD, 1);
        let (keys, values) = (numbers(pages * kv_heads * PAGE * HEAD, 2), numbers(pages * kv_heads * PAGE * HEAD, 3));
        let run = |threads: usize, shares_rows: bool| {
            let pool = Pool::new(threads);
            let mut scratch: Vec<_> = (0..threads).map(|_| AttentionScratch::new(&shape, pages * PAGE)).collect();
            let mut out = vec![0f32; rows * heads * HEAD];
            let page = |_: usize, kv_head: usize, page: usize| {
                let start = (page * kv_heads + kv_head) * PAGE * HEAD;
                let part = start..start + PAGE * HEAD;
                let rows = |numbers| CachedRows::new(Stored::F32(numbers), HEAD);
                let keys = rows(&keys[part.clone()]);
                match shares_rows.then(|| keys.in_shared_rows(HEAD)) {
                    Some(both) => KvPage { keys: both, values: both },
                    None => KvPage { keys, values: rows(&values[part]) },
                }
            };
            shape.run(&queries, &mut out, |row| RowPlace::last(depth + row), page, (Ops::best(), &pool, &mut scratch));
            out.iter().map(|number| number.to_bits()).collect::<Vec<_>>()
        };
        for shares_rows in [false, true] {
            let alone = run(1, shares_rows);
            for threads in [2, 3, 5, 16] {
                let what = format!("{heads} heads, {kv_heads} groups, {rows} rows, {threads} threads, {shares_rows}");
                assert_eq!(run(threads, shares_rows), alone, "{what}");
            }
        }
    };
    check(8, 1, 1);
    check(6, 2, 1);
    check(7, 1, 2);
    check(4, 4, 3);
}
