//! What an outbox promises: no gap, no loss, nothing altered once it was handed over.

use proptest::prelude::{Just, Strategy, any, prop_assert, prop_oneof, proptest};

use super::*;
use crate::server::page::Record;
use berth_api::game_server::counters::CounterChange;

fn label(key: &str, value: &str) -> Change {
    Change::Label { key: key.to_owned(), value: value.to_owned() }
}

fn push(outbox: &mut Outbox, change: Change) -> Result<Ticket, Full> {
    outbox.push(change.into())
}

/// One more of a counter.
fn count(which: u8) -> Change {
    Change::Counter { name: which.to_string(), by: CounterChange { diff: 1, ..CounterChange::default() } }
}

/// An outbox of which nothing stands in the journal.
fn empty() -> Outbox {
    let mut outbox = Outbox::default();
    outbox.read(Past::default());
    outbox
}

/// What is promised gets on disk.
fn write(outbox: &mut Outbox) {
    let draft = outbox.draft();
    assert_eq!(outbox.written(&draft), Some(outbox.ticket()));
    assert!(!outbox.has_unwritten());
}

/// Hands over all that gets on disk.
fn hand_over(outbox: &mut Outbox) -> Vec<Numbered> {
    write(outbox);
    outbox.hand_over()
}

fn numbers(handed: &[Numbered]) -> Vec<u64> {
    handed.iter().map(|numbered| numbered.sequence.0).collect()
}

#[test]
fn changes_are_numbered_from_one_and_handed_over_once() {
    let mut outbox = empty();
    push(&mut outbox, label("a", "1")).unwrap();
    push(&mut outbox, Change::Ready).unwrap();
    write(&mut outbox);
    assert!(outbox.has_more());
    assert_eq!(numbers(&hand_over(&mut outbox)), [1, 2]);
    assert!(!outbox.has_more());
    assert!(hand_over(&mut outbox).is_empty());
}

#[test]
fn what_is_unacknowledged_is_said_again_after_a_reconnect() {
    let mut outbox = empty();
    for key in ["a", "b", "c"] {
        push(&mut outbox, label(key, "1")).unwrap();
    }
    hand_over(&mut outbox);
    outbox.acknowledge(Sequence(1));
    push(&mut outbox, Change::Ready).unwrap();
    outbox.rewind(VERSIONS.1);
    assert_eq!(numbers(&hand_over(&mut outbox)), [2, 3, 4]);
    outbox.acknowledge(Sequence(4));
    outbox.rewind(VERSIONS.1);
    assert_eq!((hand_over(&mut outbox), outbox.len()), (Vec::new(), 0));
}

#[test]
fn only_fresh_changes_are_merged_and_the_last_wins() {
    let mut outbox = empty();
    push(&mut outbox, Change::Ready).unwrap();
    push(&mut outbox, label("a", "1")).unwrap();
    push(&mut outbox, Change::Allocate { at: "t".to_owned() }).unwrap();
    push(&mut outbox, label("a", "2")).unwrap();
    let handed = hand_over(&mut outbox);
    assert_eq!(numbers(&handed), [1, 2]);
    assert_eq!(handed[0].asked.change, Change::Allocate { at: "t".to_owned() });
    assert_eq!(handed[1].asked.change, label("a", "2"));
    push(&mut outbox, label("a", "3")).unwrap();
    let later = hand_over(&mut outbox);
    assert_eq!((numbers(&later), &later[0].asked.change), (vec![3], &label("a", "3")));
    outbox.rewind(VERSIONS.1);
    assert_eq!(numbers(&hand_over(&mut outbox)), [1, 2, 3]);
}

#[test]
fn a_fresh_shutdown_is_not_replaced() {
    let mut outbox = empty();
    push(&mut outbox, Change::Ready).unwrap();
    push(&mut outbox, Change::Shutdown).unwrap();
    push(&mut outbox, Change::Allocate { at: "t".to_owned() }).unwrap();
    assert_eq!(hand_over(&mut outbox)[0].asked.change, Change::Shutdown);
}

#[test]
fn an_applied_number_starts_the_count_and_confirms() {
    let mut outbox = empty();
    outbox.applied(Sequence(41));
    push(&mut outbox, Change::Ready).unwrap();
    assert_eq!(numbers(&hand_over(&mut outbox)), [42]);
    outbox.applied(Sequence(42));
    assert_eq!(outbox.len(), 0);
    push(&mut outbox, Change::Shutdown).unwrap();
    assert_eq!(numbers(&hand_over(&mut outbox)), [43]);
}

#[test]
fn an_applied_number_that_runs_ahead_confirms_nothing_that_nobody_has_seen() {
    let mut outbox = empty();
    push(&mut outbox, label("a", "1")).unwrap();
    hand_over(&mut outbox);
    push(&mut outbox, label("b", "1")).unwrap();
    push(&mut outbox, Change::Ready).unwrap();
    outbox.applied(Sequence(7));
    let handed = hand_over(&mut outbox);
    assert_eq!((numbers(&handed), &handed[0].asked.change), (vec![8, 9], &label("b", "1")));
    assert_eq!(outbox.last_state(), Sequence(9));
}

#[test]
fn a_state_goes_past_a_full_window_of_metadata() {
    let mut outbox = empty();
    for index in 0..WINDOW + 10 {
        push(&mut outbox, label(&index.to_string(), "1")).unwrap();
    }
    assert_eq!(hand_over(&mut outbox).len(), WINDOW);
    push(&mut outbox, label("late", "1")).unwrap();
    write(&mut outbox);
    assert!(!outbox.has_more(), "metadata waits behind the window");
    push(&mut outbox, Change::Ready).unwrap();
    let handed = hand_over(&mut outbox);
    assert_eq!(handed.last().map(|last| &last.asked.change), Some(&Change::Ready));
    assert_eq!(handed.len(), 12);
    outbox.acknowledge(Sequence(100));
    assert_eq!(outbox.len(), 0);
}

#[test]
fn large_metadata_waits_sooner() {
    let mut outbox = empty();
    for index in 0..4 {
        let value = "x".repeat(200 * 1024);
        push(&mut outbox, Change::Annotation { key: index.to_string(), value }).unwrap();
    }
    assert_eq!(hand_over(&mut outbox).len(), 3);
    outbox.acknowledge(Sequence(1));
    assert_eq!(hand_over(&mut outbox).len(), 1);
}

#[test]
fn a_flood_is_refused_and_merging_goes_on() {
    let mut outbox = empty();
    for index in 0..MOST_CHANGES {
        push(&mut outbox, label(&index.to_string(), "1")).unwrap();
    }
    assert_eq!(push(&mut outbox, label("one-more", "1")), Err(Full));
    assert!(push(&mut outbox, label("5", "2")).is_ok());
}

#[test]
fn nothing_is_told_before_it_is_on_disk() {
    let mut outbox = empty();
    let first = push(&mut outbox, label("a", "1")).unwrap();
    let draft = outbox.draft();
    // It comes while the disk is busy with the first, and takes its place.
    let second = push(&mut outbox, label("a", "2")).unwrap();
    assert!(!outbox.has_more() && !outbox.has_draft(), "one draft at a time");
    assert_eq!(outbox.written(&draft), Some(first));
    assert_eq!(outbox.hand_over()[0].asked.change, label("a", "1"), "what is on disk under its number");
    let draft = outbox.draft();
    assert_eq!((numbers(&draft.puts), &draft.puts[0].asked.change), (vec![2], &label("a", "2")));
    assert_eq!(outbox.written(&draft), Some(second));
    assert_eq!(numbers(&outbox.hand_over()), [2]);
}

#[test]
fn what_is_refused_was_never_promised_and_what_was_stays() {
    let mut outbox = empty();
    for index in 0..WINDOW + 1 {
        push(&mut outbox, label(&index.to_string(), "1")).unwrap();
    }
    assert_eq!(hand_over(&mut outbox).len(), WINDOW);
    push(&mut outbox, label(&WINDOW.to_string(), "2")).unwrap();
    push(&mut outbox, Change::Ready).unwrap();
    let draft = outbox.draft();
    assert_eq!(numbers(&draft.puts), [65, 66]);
    push(&mut outbox, Change::Shutdown).unwrap();
    outbox.refused();
    assert!(!outbox.has_unwritten());
    assert_eq!((outbox.state(), outbox.last_state()), (None, Sequence(0)));
    outbox.acknowledge(Sequence(64));
    assert_eq!(hand_over(&mut outbox)[0].asked.change, label(&WINDOW.to_string(), "1"));
    push(&mut outbox, Change::Allocate { at: "t".to_owned() }).unwrap();
    assert_eq!(numbers(&hand_over(&mut outbox)), [66], "a number that nobody has seen");
}

fn diff(numbered: &Numbered) -> i64 {
    match &numbered.asked.change {
        Change::Counter { by, .. } => by.diff,
        other => panic!("{other:?} counts nothing"),
    }
}

#[test]
fn operations_add_up_and_none_is_done_twice() {
    let mut outbox = empty();
    push(&mut outbox, count(1)).unwrap();
    push(&mut outbox, count(2)).unwrap();
    push(&mut outbox, count(1)).unwrap();
    let draft = outbox.draft();
    // What is on its way to the disk is not altered, as it is told to the agent once it is there.
    push(&mut outbox, count(1)).unwrap();
    outbox.written(&draft);
    let handed = outbox.hand_over();
    assert_eq!(handed.iter().map(diff).collect::<Vec<_>>(), [2, 1]);
    assert_eq!(hand_over(&mut outbox).iter().map(diff).collect::<Vec<_>>(), [1]);
    for index in 0..WINDOW {
        push(&mut outbox, label(&index.to_string(), "1")).unwrap();
    }
    hand_over(&mut outbox);
    for _ in 0..2000 {
        push(&mut outbox, count(1)).unwrap();
        write(&mut outbox);
    }
    assert!(outbox.len() < WINDOW + 8, "behind a full window they add up, on disk as well");
    outbox.acknowledge(Sequence(3));
    push(&mut outbox, count(1)).unwrap();
    outbox.acknowledge(Sequence(WINDOW as u64));
    let handed = hand_over(&mut outbox);
    let total: i64 =
        handed.iter().filter(|one| matches!(one.asked.change, Change::Counter { .. })).map(diff).sum();
    assert_eq!(total, 2001);
}

#[test]
fn an_agent_of_an_older_version_is_told_what_it_can_read() {
    let mut outbox = empty();
    outbox.rewind(1);
    push(&mut outbox, label("a", "1")).unwrap();
    push(&mut outbox, count(1)).unwrap();
    push(&mut outbox, label("b", "1")).unwrap();
    assert_eq!(numbers(&hand_over(&mut outbox)), [1]);
    assert!(!outbox.has_more());
    outbox.rewind(2);
    assert_eq!(numbers(&outbox.hand_over()), [1, 2, 3]);
}

#[test]
fn what_is_done_with_is_trimmed() {
    let mut outbox = empty();
    push(&mut outbox, label("a", "1")).unwrap();
    push(&mut outbox, label("b", "1")).unwrap();
    hand_over(&mut outbox);
    assert!(!outbox.has_draft());
    outbox.acknowledge(Sequence(1));
    let draft = outbox.draft();
    assert_eq!((draft.trim, draft.puts.len(), draft.last), (Some(Sequence(1)), 0, Sequence(2)));
    outbox.acknowledge(Sequence(2));
    outbox.written(&draft);
    assert_eq!(outbox.draft().trim, Some(Sequence(2)), "what came meanwhile is not forgotten");
}

#[test]
fn counting_goes_on_where_the_journal_ends_and_above_it_where_it_is_lost() {
    let record = || Record { last: Sequence(5), changes: Vec::new() };
    let above = Sequence(1_000_000);
    let cases = [
        ("nothing yet", None, false, 0, 1),
        ("a record", Some(record()), false, 3, 6),
        ("numbers that no record has", None, false, 7, 1_000_001),
        ("numbers beyond the record", Some(record()), false, 7, 1_000_001),
        ("numbers beyond everything", None, false, 2_000_000, 2_000_001),
        ("a lost journal", None, true, 0, 1_000_001),
        ("a record in the journal after a lost one", Some(record()), true, 5, 6),
    ];
    for (name, record, is_lost, applied, next) in cases {
        for is_read_first in [true, false] {
            let mut outbox = Outbox::default();
            let past = Past { record: record.clone(), is_lost, above };
            if is_read_first {
                outbox.read(past);
                outbox.applied(Sequence(applied));
            } else {
                outbox.applied(Sequence(applied));
                outbox.read(past);
            }
            push(&mut outbox, Change::Ready).unwrap();
            assert_eq!(numbers(&hand_over(&mut outbox)), [next], "{name}, {is_read_first}");
        }
    }
}

/// What stands on the disk.
#[derive(Clone, Default)]
struct Disk {
    last: Sequence,
    changes: std::collections::BTreeMap<Sequence, Arc<Asked>>,
}

impl Disk {
    fn take(&mut self, draft: &Draft) {
        if draft.is_rewrite {
            self.changes.clear();
        }
        if let Some(trim) = draft.trim {
            self.changes.retain(|sequence, _| *sequence > trim);
        }
        self.changes.extend(draft.puts.iter().map(|put| (put.sequence, Arc::clone(&put.asked))));
        self.last = draft.last;
    }

    fn read_back(&self) -> Outbox {
        let numbered = |(sequence, asked): (&Sequence, &Arc<Asked>)| Numbered {
            sequence: *sequence,
            asked: Arc::clone(asked),
        };
        let changes = self.changes.iter().map(numbered).collect();
        let mut outbox = Outbox::default();
        let record = (self.last > Sequence(0)).then_some(Record { last: self.last, changes });
        outbox.read(Past { record, ..Past::default() });
        outbox
    }
}

/// A game, its outbox, a disk and an agent.
#[derive(Default)]
struct World {
    outbox: Outbox,
    disk: Disk,
    writing: Option<Draft>,
    /// Values only grow.
    value: u32,
    /// Calls that were not answered yet.
    callers: Vec<(Ticket, String, u32)>,
    /// Calls that counted and were not answered yet.
    counting: Vec<(Ticket, u8)>,
    /// How often each counter was asked to count, and how often that was promised.
    counts: std::collections::BTreeMap<u8, (i64, i64)>,
    promised: std::collections::BTreeMap<String, u32>,
    heard: Vec<Numbered>,
}

#[derive(Clone, Debug)]
enum Step {
    Label(u8),
    /// One more of a counter.
    Count(u8),
    State(Change),
    Draft,
    Written,
    /// The disk says no, and may have written all the same.
    Refused(bool),
    /// The process dies, and what it was writing may have got to the disk.
    Die(bool),
    HandOver,
    Rewind,
    /// The agent confirms a part of what it has heard.
    Acknowledge(u64),
    /// The agent tells a server that contains a part of what it has heard.
    Applied(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let state = prop_oneof![
        Just(Change::Ready),
        Just(Change::Shutdown),
        any::<u8>().prop_map(|at| Change::Allocate { at: at.to_string() }),
    ];
    let step = prop_oneof![
        // More keys than the window has places.
        6 => (0_u8..80).prop_map(Step::Label),
        2 => (0_u8..3).prop_map(Step::Label),
        3 => (0_u8..3).prop_map(Step::Count),
        1 => state.prop_map(Step::State),
        4 => Just(Step::Draft),
        4 => Just(Step::Written),
        1 => any::<bool>().prop_map(Step::Refused),
        1 => any::<bool>().prop_map(Step::Die),
        3 => Just(Step::HandOver),
        1 => Just(Step::Rewind),
        1 => (0_u64..6).prop_map(Step::Acknowledge),
        1 => (0_u64..6).prop_map(Step::Applied),
    ];
    proptest::collection::vec(step, 0..400)
}

impl World {
    fn act(&mut self, step: Step) {
        let confirmed = |back: u64, heard: &[Numbered]| Sequence((heard.len() as u64).saturating_sub(back));
        match step {
            Step::Label(key) => {
                self.value += 1;
                let ticket =
                    push(&mut self.outbox, label(&key.to_string(), &self.value.to_string())).unwrap();
                self.callers.push((ticket, key.to_string(), self.value));
            }
            Step::Count(which) => {
                let ticket = push(&mut self.outbox, count(which)).unwrap();
                self.counts.entry(which).or_default().0 += 1;
                self.counting.push((ticket, which));
            }
            Step::State(change) => drop(push(&mut self.outbox, change).unwrap()),
            Step::Draft if self.outbox.has_draft() => self.writing = Some(self.outbox.draft()),
            Step::Draft => {}
            Step::Written => self.written(),
            Step::Refused(is_there) => {
                if let Some(draft) = self.writing.take() {
                    if is_there {
                        self.disk.take(&draft);
                    }
                    self.outbox.refused();
                    self.outbox.distrust();
                    (self.callers, self.counting) = (Vec::new(), Vec::new());
                }
            }
            Step::Die(is_there) => {
                if let Some(draft) = self.writing.take().filter(|_| is_there) {
                    self.disk.take(&draft);
                }
                self.outbox = self.disk.read_back();
                (self.callers, self.counting) = (Vec::new(), Vec::new());
            }
            Step::HandOver => self.listen(),
            Step::Rewind => self.outbox.rewind(VERSIONS.1),
            Step::Acknowledge(back) => self.outbox.acknowledge(confirmed(back, &self.heard)),
            Step::Applied(back) => self.outbox.applied(confirmed(back, &self.heard)),
        }
    }

    fn written(&mut self) {
        let Some(draft) = self.writing.take() else { return };
        self.disk.take(&draft);
        let done = self.outbox.written(&draft).expect("nobody else gives numbers");
        for (_, key, value) in self.callers.extract_if(.., |(ticket, ..)| *ticket <= done) {
            self.promised.insert(key, value);
        }
        for (_, which) in self.counting.extract_if(.., |(ticket, _)| *ticket <= done) {
            self.counts.entry(which).or_default().1 += 1;
        }
    }

    fn listen(&mut self) {
        for numbered in self.outbox.hand_over() {
            match self.heard.get(usize::try_from(numbered.sequence.0 - 1).unwrap()) {
                Some(before) => assert_eq!(before, &numbered, "altered after it was handed over"),
                None => {
                    assert_eq!(numbered.sequence.0, self.heard.len() as u64 + 1, "a gap");
                    self.heard.push(numbered);
                }
            }
        }
    }
}

proptest! {
    /// An agent that takes every number once, in order, hears the last value of each label that was promised, or a later
    /// one that was asked for; never a gap, and never two things under one number. Whoever dies, whenever.
    #[test]
    fn an_agent_hears_everything_once_and_in_order(steps in steps()) {
        let mut world = World { outbox: empty(), ..World::default() };
        for step in steps {
            world.act(step);
        }
        world.act(Step::Written);
        world.act(Step::Rewind);
        while world.outbox.len() > 0 {
            for step in [Step::Draft, Step::Written, Step::HandOver, Step::Acknowledge(0)] {
                world.act(step);
            }
        }
        let mut got = std::collections::BTreeMap::new();
        for numbered in &world.heard {
            if let Change::Label { key, value } = &numbered.asked.change {
                let before = got.insert(key.clone(), value.parse::<u32>().unwrap());
                prop_assert!(before < got.get(key).copied(), "an older value after a newer one");
            }
        }
        for (key, value) in &world.promised {
            prop_assert!(got.get(key) >= Some(value), "{key}={value} was promised: {:?}", got.get(key));
        }
        let mut counted = std::collections::BTreeMap::new();
        for numbered in &world.heard {
            if let Change::Counter { name, by } = &numbered.asked.change {
                *counted.entry(name.parse::<u8>().unwrap()).or_default() += by.diff;
            }
        }
        for (which, (asked, promised)) in &world.counts {
            let heard = counted.get(which).copied().unwrap_or_default();
            prop_assert!((*promised..=*asked).contains(&heard), "{promised} promised, {asked} asked, {heard} heard");
        }
        prop_assert!(world.callers.is_empty(), "{:?} were not answered", world.callers);
        for step in [Step::Draft, Step::Written] {
            world.act(step);
        }
        prop_assert!(world.disk.changes.is_empty(), "what is done with is trimmed");
        prop_assert!(!world.outbox.has_draft());
    }
}
