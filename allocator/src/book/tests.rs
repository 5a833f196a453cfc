use proptest::prelude::{Strategy, any, prop_assert_eq, proptest};

use super::*;
use crate::testing::{book, key, on, version};

fn shown(book: &Book, name: &str) -> Option<String> {
    book.shown(&key(name)).map(|candidate| candidate.version.resource.clone())
}

#[test]
fn older_news_are_no_news() {
    let mut book = book(&[("a", on("n").at(10))]);
    book.see(&key("a"), version(9), Some(on("m").at(9)));
    assert_eq!(shown(&book, "a").as_deref(), Some("10"));
    book.see(&key("a"), version(9), None);
    assert_eq!(shown(&book, "a").as_deref(), Some("10"));
    book.see(&key("a"), version(11), Some(on("m").at(11)));
    assert_eq!(shown(&book, "a").as_deref(), Some("11"));
    assert_eq!((book.count("n"), book.count("m").map(|count| count.ready)), (None, Some(1)));
    book.see(&key("a"), version(12), None);
    assert!(book.is_empty() && book.count("m").is_none());
}

#[test]
fn a_server_that_is_taken_shows_what_it_will_be() {
    let mut book = book(&[("a", on("n").at(1))]);
    book.take(&key("a"), on("n").at(1).allocated());
    assert_eq!(book.count("n"), Some(NodeCount { allocated: 1, ready: 0 }));
    assert_eq!(book.look(&key("a")).map(|candidate| candidate.state), Some(Wanted::Ready));
    book.release(&key("a"));
    assert_eq!(book.count("n"), Some(NodeCount { allocated: 0, ready: 1 }));
}

#[test]
fn what_the_watch_says_while_a_server_is_taken_counts_where_it_is_newer() {
    let taken = || {
        let mut book = book(&[("a", on("n").at(1))]);
        book.take(&key("a"), on("n").at(1).allocated());
        book
    };
    let mut older = taken();
    older.see(&key("a"), version(2), Some(on("n").at(2)));
    older.rebase(&key("a"), &version(3), Some(on("n").at(3).allocated()));
    assert_eq!(shown(&older, "a").as_deref(), Some("3"));

    let mut newer = taken();
    newer.see(&key("a"), version(4), None);
    assert!(newer.rebase(&key("a"), &version(3), Some(on("n").at(3).allocated())).is_none());
    assert!(newer.is_empty());

    let mut unwritten = taken();
    unwritten.see(&key("a"), version(2), Some(on("m").at(2)));
    unwritten.release(&key("a"));
    assert_eq!(shown(&unwritten, "a").as_deref(), Some("2"));
}

#[test]
fn what_a_list_does_not_show_is_gone() {
    let mut book = book(&[("a", on("n").at(1)), ("b", on("n").at(2))]);
    book.begin_list();
    book.see(&key("b"), version(2), Some(on("n").at(2)));
    book.end_list();
    assert_eq!((shown(&book, "a"), shown(&book, "b").as_deref()), (None, Some("2")));
}

#[test]
fn a_server_that_is_taken_while_a_list_passes_it_over_is_gone_once_it_is_released() {
    let mut book = book(&[("a", on("n").at(1))]);
    book.take(&key("a"), on("n").at(1).allocated());
    book.begin_list();
    book.end_list();
    assert!(shown(&book, "a").is_some());
    book.release(&key("a"));
    assert!(book.is_empty());
}

#[test]
fn the_end_of_an_earlier_life_does_not_end_a_later_one() {
    let mut book = Book::default();
    let reborn = Version { uid: "second".to_owned(), resource: "9".to_owned() };
    book.see(&key("a"), reborn.clone(), Some(Candidate { version: reborn, ..on("n") }));
    book.forget(&key("a"), version(5));
    assert!(shown(&book, "a").is_some());
}

proptest! {
    /// However servers come, go, and are taken, the counts are those of what is shown.
    #[test]
    fn counts_are_those_of_what_is_shown(steps in proptest::collection::vec(step(), 0..60)) {
        let mut book = Book::default();
        for (number, (name, kind, is_allocated, node)) in (1..).zip(steps) {
            let key = key(&name);
            let mut candidate = on(["n", "m"][usize::from(node)]).at(number);
            if is_allocated {
                candidate = candidate.allocated();
            }
            match kind {
                0 => book.see(&key, version(number), Some(candidate)),
                1 => book.see(&key, version(number), None),
                2 => book.take(&key, candidate),
                3 => drop(book.rebase(&key, &version(number), Some(candidate)).cloned()),
                4 => book.release(&key),
                _ => book.forget(&key, version(number)),
            }
        }
        for node in ["n", "m"] {
            let all: Vec<(&str, &Candidate)> =
                ["a", "b"].into_iter().filter_map(|name| Some((name, book.shown(&key(name))?))).collect();
            let in_state = |state| -> u32 {
                let names: BTreeSet<String> = all
                    .iter()
                    .filter(|(_, one)| one.node == node && one.state == state)
                    .map(|(name, _)| (*name).to_owned())
                    .collect();
                let listed = book.by_node("games", state).and_then(|names| names.get(node));
                assert_eq!(listed.cloned().unwrap_or_default(), names);
                u32::try_from(names.len()).unwrap()
            };
            let counted = NodeCount {
                allocated: in_state(Wanted::Allocated),
                ready: in_state(Wanted::Ready),
            };
            prop_assert_eq!(book.count(node).unwrap_or_default(), counted);
        }
    }
}

fn step() -> impl Strategy<Value = (String, u8, bool, bool)> {
    ("[ab]", 0_u8..6, any::<bool>(), any::<bool>())
}
