//! What an outbox promises: no gap, no loss, nothing altered once it was handed over.

use proptest::prelude::{Just, Strategy, any, prop_assert, prop_assert_eq, prop_oneof, proptest};

use super::*;

fn label(key: &str, value: &str) -> Change {
    Change::Label { key: key.to_owned(), value: value.to_owned() }
}

fn numbers(handed: &[Numbered]) -> Vec<u64> {
    handed.iter().map(|numbered| numbered.sequence.0).collect()
}

#[test]
fn changes_are_numbered_from_one_and_handed_over_once() {
    let mut outbox = Outbox::default();
    outbox.push(label("a", "1")).unwrap();
    outbox.push(Change::Ready).unwrap();
    assert!(outbox.has_more());
    assert_eq!(numbers(&outbox.hand_over()), [1, 2]);
    assert!(!outbox.has_more());
    assert!(outbox.hand_over().is_empty());
}

#[test]
fn what_is_unacknowledged_is_said_again_after_a_reconnect() {
    let mut outbox = Outbox::default();
    for key in ["a", "b", "c"] {
        outbox.push(label(key, "1")).unwrap();
    }
    outbox.hand_over();
    outbox.acknowledge(Sequence(1));
    outbox.push(Change::Ready).unwrap();
    outbox.rewind();
    assert_eq!(numbers(&outbox.hand_over()), [2, 3, 4]);
    outbox.acknowledge(Sequence(4));
    outbox.rewind();
    assert_eq!((outbox.hand_over(), outbox.len()), (Vec::new(), 0));
}

#[test]
fn only_fresh_changes_are_merged_and_the_last_wins() {
    let mut outbox = Outbox::default();
    outbox.push(Change::Ready).unwrap();
    outbox.push(label("a", "1")).unwrap();
    outbox.push(Change::Allocate { at: "t".to_owned() }).unwrap();
    outbox.push(label("a", "2")).unwrap();
    let handed = outbox.hand_over();
    assert_eq!(numbers(&handed), [1, 2]);
    assert_eq!(handed[0].change, Change::Allocate { at: "t".to_owned() });
    assert_eq!(handed[1].change, label("a", "2"));
    outbox.push(label("a", "3")).unwrap();
    let later = outbox.hand_over();
    assert_eq!((numbers(&later), &later[0].change), (vec![3], &label("a", "3")));
    outbox.rewind();
    assert_eq!(numbers(&outbox.hand_over()), [1, 2, 3]);
}

#[test]
fn a_fresh_shutdown_is_not_replaced() {
    let mut outbox = Outbox::default();
    outbox.push(Change::Ready).unwrap();
    outbox.push(Change::Shutdown).unwrap();
    outbox.push(Change::Allocate { at: "t".to_owned() }).unwrap();
    assert_eq!(outbox.hand_over()[0].change, Change::Shutdown);
}

#[test]
fn an_applied_number_starts_the_count_and_confirms() {
    let mut outbox = Outbox::default();
    outbox.applied(Sequence(41));
    outbox.push(Change::Ready).unwrap();
    assert_eq!(numbers(&outbox.hand_over()), [42]);
    outbox.applied(Sequence(42));
    assert_eq!(outbox.len(), 0);
    outbox.push(Change::Shutdown).unwrap();
    assert_eq!(numbers(&outbox.hand_over()), [43]);
}

#[test]
fn an_applied_number_that_runs_ahead_confirms_nothing_that_nobody_has_seen() {
    let mut outbox = Outbox::default();
    outbox.push(label("a", "1")).unwrap();
    outbox.hand_over();
    outbox.push(label("b", "1")).unwrap();
    outbox.push(Change::Ready).unwrap();
    outbox.applied(Sequence(7));
    let handed = outbox.hand_over();
    assert_eq!((numbers(&handed), &handed[0].change), (vec![8, 9], &label("b", "1")));
    assert_eq!(outbox.last_state(), Sequence(9));
}

#[test]
fn a_state_goes_past_a_full_window_of_metadata() {
    let mut outbox = Outbox::default();
    for index in 0..WINDOW + 10 {
        outbox.push(label(&index.to_string(), "1")).unwrap();
    }
    assert_eq!(outbox.hand_over().len(), WINDOW);
    outbox.push(label("late", "1")).unwrap();
    assert!(!outbox.has_more(), "metadata waits behind the window");
    outbox.push(Change::Ready).unwrap();
    let handed = outbox.hand_over();
    assert_eq!(handed.last().map(|last| &last.change), Some(&Change::Ready));
    assert_eq!(handed.len(), 12);
    outbox.acknowledge(Sequence(100));
    assert_eq!(outbox.len(), 0);
}

#[test]
fn large_metadata_waits_sooner() {
    let mut outbox = Outbox::default();
    for index in 0..4 {
        let value = "x".repeat(200 * 1024);
        outbox.push(Change::Annotation { key: index.to_string(), value }).unwrap();
    }
    assert_eq!(outbox.hand_over().len(), 3);
    outbox.acknowledge(Sequence(1));
    assert_eq!(outbox.hand_over().len(), 1);
}

#[test]
fn a_flood_is_refused_and_merging_goes_on() {
    let mut outbox = Outbox::default();
    for index in 0..MOST_FRESH {
        outbox.push(label(&index.to_string(), "1")).unwrap();
    }
    assert_eq!(outbox.push(label("one-more", "1")), Err(Full));
    assert_eq!(outbox.push(label("5", "2")), Ok(()));
}

#[derive(Clone, Debug)]
enum Step {
    Push(Change),
    HandOver,
    Rewind,
    /// The agent confirms a part of what it has heard.
    Acknowledge(u64),
    /// The agent tells a server that contains a part of what it has heard.
    Applied(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let change = prop_oneof![
        Just(Change::Ready),
        Just(Change::Shutdown),
        any::<u8>().prop_map(|at| Change::Allocate { at: at.to_string() }),
        (0_u8..4, any::<u8>()).prop_map(|(key, value)| label(&key.to_string(), &value.to_string())),
    ];
    let step = prop_oneof![
        4 => change.prop_map(Step::Push),
        2 => Just(Step::HandOver),
        1 => Just(Step::Rewind),
        1 => (0_u64..6).prop_map(Step::Acknowledge),
        1 => (0_u64..6).prop_map(Step::Applied),
    ];
    proptest::collection::vec(step, 0..60)
}

proptest! {
    /// An agent that takes every number once, in order, hears each label's last value and never a gap.
    #[test]
    fn an_agent_hears_everything_once_and_in_order(steps in steps()) {
        let mut outbox = Outbox::default();
        let mut heard: Vec<Numbered> = Vec::new();
        let mut wanted = std::collections::BTreeMap::new();
        let listen = |heard: &mut Vec<Numbered>, told: Vec<Numbered>| {
            for numbered in told {
                match heard.get(usize::try_from(numbered.sequence.0 - 1).unwrap()) {
                    Some(before) => assert_eq!(before, &numbered, "altered after it was handed over"),
                    None => {
                        assert_eq!(numbered.sequence.0, heard.len() as u64 + 1, "a gap");
                        heard.push(numbered);
                    }
                }
            }
        };
        for step in steps {
            match step {
                Step::Push(change) => {
                    if let Change::Label { key, value } = &change {
                        wanted.insert(key.clone(), value.clone());
                    }
                    outbox.push(change).unwrap();
                }
                Step::HandOver => listen(&mut heard, outbox.hand_over()),
                Step::Rewind => outbox.rewind(),
                Step::Acknowledge(back) => outbox.acknowledge(Sequence((heard.len() as u64).saturating_sub(back))),
                Step::Applied(back) => outbox.applied(Sequence((heard.len() as u64).saturating_sub(back))),
            }
        }
        outbox.rewind();
        while outbox.has_more() {
            listen(&mut heard, outbox.hand_over());
            outbox.acknowledge(Sequence(heard.len() as u64));
        }
        prop_assert_eq!(outbox.len(), 0);
        let mut got = std::collections::BTreeMap::new();
        for numbered in &heard {
            if let Change::Label { key, value } = &numbered.change {
                got.insert(key.clone(), value.clone());
            }
        }
        prop_assert_eq!(got, wanted);
        prop_assert!(heard.windows(2).all(|pair| pair[0].sequence < pair[1].sequence));
    }
}
