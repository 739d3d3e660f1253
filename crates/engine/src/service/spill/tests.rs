//! Names that collide: a page is given to its own text alone, whatever the hash says.

use std::sync::{Arc, Mutex};

use cascadia_model::{AdapterId, PageBytes, PageClass, PageId, StageError};

use super::disk::{Disk, Folder};
use super::{Secret, Spill, SpillSetup};
use crate::service::schedule::{Block, Fetched, PageTier, PrefixKey};

/// One page.
struct OnePage(Mutex<Vec<u8>>);

impl PageBytes for OnePage {
    fn page_bytes(&self, _: PageClass) -> usize {
        8
    }

    fn copy_page(&self, _: PageClass, _: PageId) -> Vec<u8> {
        self.0.lock().unwrap().clone()
    }

    fn fill_page(&self, _: PageClass, _: PageId, bytes: &[u8]) -> Result<(), StageError> {
        *self.0.lock().unwrap() = bytes.to_vec();
        Ok(())
    }

    fn give_back_page(&self, _: PageClass, _: PageId) -> Result<(), StageError> {
        Ok(())
    }
}

#[test]
fn texts_of_one_name_do_not_get_each_others_pages() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Arc::new(Folder::open(folder.path()).unwrap());
    let page = Arc::new(OnePage(Mutex::new(vec![1; 8])));
    let setup = SpillSetup {
        pages: Arc::clone(&page) as Arc<dyn PageBytes>,
        disk: disk as Arc<dyn Disk>,
        secret: Secret::random().unwrap(),
        context: "",
        bytes: 1 << 20,
        queue_bytes: 1 << 20,
        seconds: Arc::new(|| 0.0),
    };
    let (mut tier, writer) = Spill::new(setup).unwrap();
    tier.names.used_bytes = 0;
    let own: Vec<u32> = (0..128).collect();
    let mut other = own.clone();
    // The pages are alike; what comes before them is not.
    other[3] += 1;
    let block = Block { owner: PrefixKey::default(), tokens: &own, class: PageClass::Full };
    let others = [
        Block { tokens: &other, ..block },
        Block { tokens: &own[..64], ..block },
        Block { owner: PrefixKey { salt: 1, ..block.owner }, ..block },
        Block { owner: PrefixKey { adapter: Some(AdapterId([1; 32])), ..block.owner }, ..block },
    ];
    for is_written in [false, true] {
        for other in others {
            *page.0.lock().unwrap() = vec![1; 8];
            tier.keep(block, 0);
            if is_written {
                writer.work();
            }
            *page.0.lock().unwrap() = vec![2; 8];
            assert!(tier.find(other.owner, other.tokens, 0)[0][PageClass::Full], "the names are the same");
            assert_eq!(tier.fetch(other, 0), Fetched::Missing, "{other:?}");
            assert_eq!(*page.0.lock().unwrap(), vec![2; 8]);
            writer.work();
        }
    }
    tier.keep(block, 0);
    writer.work();
    *page.0.lock().unwrap() = vec![1; 8];
    assert_eq!(tier.fetch(block, 0), Fetched::Filled);
    assert_eq!((tier.handle().status().unwrap().damaged, page.0.lock().unwrap()[0]), (8, 2));
}
