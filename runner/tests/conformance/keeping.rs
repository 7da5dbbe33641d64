//! State in the hands of operators, beside other namespaces, and on its way to another store.

use hourhand::queue::{Imported, Store, StoreError};

use crate::bed::*;
use crate::copying::{copy, export_all, import_all};
use crate::remembering::{entry, sound};

pub(crate) async fn operators_see_and_change_state<B: Bed>(bed: B) {
    let store = bed.store();
    for n in 0..130 {
        store.set_state(&name("large"), &format!("k{n}"), &[b'x'; 100]).await.expect("set");
    }
    store.set_state(&name("b"), "k", b"1").await.expect("set");
    let version = store.set_state(&name("b"), "k", b"22").await.expect("set again");
    assert_eq!(entry(store, "k").await, ("22".to_owned(), version));
    let buckets = store.buckets(None).await.expect("buckets");
    let told: Vec<(&str, u64, u64)> =
        buckets.items.iter().map(|seen| (seen.bucket.as_str(), seen.entries, seen.bytes)).collect();
    let keys: u64 = (0..130).map(|n| format!("k{n}").len() as u64).sum();
    assert_eq!(told, [("b", 1, 3), ("large", 130, keys + 13_000)], "in order of name");
    assert_eq!(buckets.cursor, None);

    let (mut entries, mut cursor) = (std::collections::BTreeMap::new(), None);
    loop {
        let page = store.state_page(&name("large"), cursor).await.expect("a page");
        entries.extend(page.items.into_iter().map(|entry| (entry.key, entry.found)));
        cursor = page.cursor;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(entries.len(), 130);
    assert!(entries.values().all(|found| found.value == vec![b'x'; 100]));
    assert_eq!(store.state_page(&name("none"), None).await.expect("a page").items, vec![]);

    assert_eq!(store.delete_state(&name("b"), "k").await, Ok(true));
    assert_eq!(store.delete_state(&name("b"), "k").await, Ok(false));
    let mut deleted = 0;
    loop {
        let (some, more) = store.empty_bucket(&name("large")).await.expect("deleted");
        deleted += some;
        if !more {
            break;
        }
    }
    assert_eq!(deleted, 130);
    assert_eq!(store.buckets(None).await.expect("buckets").items, vec![]);
    assert_eq!(store.empty_bucket(&name("large")).await, Ok((0, false)));
    for refused in [
        store.set_state(&name("b"), "", b"").await.map(drop),
        store.set_state(&name("b"), &"k".repeat(257), b"").await.map(drop),
        store.set_state(&name("b"), "k", &vec![0; (64 << 10) + 1]).await.map(drop),
        store.read_state(&name("b"), &vec!["k".to_owned(); 201]).await.map(drop),
        store.buckets(Some("no cursor".to_owned())).await.map(drop),
    ] {
        assert!(matches!(refused, Err(StoreError::Invalid(_))), "{refused:?}");
    }
    store.set_state(&name("b"), &"k".repeat(256), &vec![0; 64 << 10]).await.expect("the largest");
    sound(&bed).await;
}

pub(crate) async fn buckets_of_two_namespaces_never_meet<B: Bed>(bed: B) {
    let (store, other) = (bed.store(), bed.open("other").await);
    store.set_state(&name("b"), "k", b"here").await.expect("set");
    other.set_state(&name("b"), "k", b"there").await.expect("set");
    other.empty_bucket(&name("b")).await.expect("deleted");
    assert_eq!(entry(store, "k").await.0, "here");
    assert_eq!(entry(&other, "k").await.1, 0);
    sound(&bed).await;
}

pub(crate) async fn a_copy_brings_state_and_a_repeat_only_what_is_missing<B: Bed>(bed: B) {
    let from = bed.store();
    let to = bed.open("target").await;
    for n in 0..120 {
        from.set_state(&name(&format!("b{}", n % 7)), &format!("k:{n}"), format!("v{n}").as_bytes())
            .await
            .expect("set");
    }
    from.set_state(&name("b"), "k", b"\x00 raw").await.expect("set");
    to.set_state(&name("b1"), "k:1", b"the target's").await.expect("set");
    let source = from.export_source().await.expect("a source");
    let items = export_all(from).await;
    assert_eq!(items.len(), 121);
    let some = import_all(&to, &source, &items[..50]).await;
    assert_eq!(some.values().sum::<usize>(), 50);
    let counts = copy(from, &to).await;
    let left = counts.get(&Imported::Copied).copied().unwrap_or(0);
    assert_eq!(
        (left + some.get(&Imported::Copied).copied().unwrap_or(0), counts.values().sum::<usize>()),
        (120, 121)
    );
    let told = |page: hourhand::queue::Page<hourhand::effects::BucketSeen>| {
        page.items.into_iter().map(|seen| (seen.bucket, seen.entries)).collect::<Vec<_>>()
    };
    assert_eq!(
        told(to.buckets(None).await.expect("buckets")),
        told(from.buckets(None).await.expect("buckets"))
    );
    let found = to.read_state(&name("b1"), &["k:1".to_owned(), "k:8".to_owned()]).await.expect("read");
    let values: Vec<_> = found.values.into_iter().map(|v| v.expect("an entry").value).collect();
    assert_eq!(values, ["the target's", "v8"], "what is there is left alone");
    // What an earlier copy brought and the target has deleted does not come back; what is new comes.
    to.delete_state(&name("b"), "k").await.expect("deleted");
    from.set_state(&name("b"), "k2", b"new").await.expect("set");
    let again = copy(from, &to).await;
    assert_eq!(again.get(&Imported::Copied), Some(&1));
    assert_eq!(again.get(&Imported::Before), Some(&1));
    let found = to.read_state(&name("b"), &["k".to_owned(), "k2".to_owned()]).await.expect("read");
    assert!(found.values[0].is_none() && found.values[1].is_some());
    let made = to.set_state(&name("b"), "k", b"again").await.expect("set");
    assert!(made > found.values[1].as_ref().expect("an entry").version, "versions are the target's own");
    assert_eq!(to.doctor(false).await, Ok(vec![]));
    sound(&bed).await;
}
