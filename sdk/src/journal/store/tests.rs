//! Files that are whole, of another format, or in the way.

use berth_api::link::Change;

use super::*;
use crate::server::outbox::Outbox;
use crate::server::page::Past;

fn now() -> Timestamp {
    "2026-01-02T03:04:05Z".parse().unwrap()
}

fn uid(name: &str) -> ServerUid {
    ServerUid(name.to_owned())
}

/// A draft of as many labels.
fn draft(labels: u64) -> Draft {
    let mut outbox = Outbox::default();
    outbox.read(Past::default());
    for number in 1..=labels {
        outbox.push(Change::Label { key: number.to_string(), value: "1".to_owned() }.into()).unwrap();
    }
    outbox.draft()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn what_is_committed_is_read_back_and_what_is_forgotten_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let Opened { mut store, servers, was_set_aside } = Store::open(folder.path(), now()).unwrap();
    assert!(servers.is_empty() && !was_set_aside && !store.is_lost());
    let drafts = [(uid("a"), draft(3)), (uid("b"), draft(1)), (uid("ab"), draft(2))];
    store.commit(std::iter::empty(), &drafts).unwrap();
    let bytes = store.bytes();
    let mut trim = draft(3);
    (trim.trim, trim.puts) = (Some(Sequence(2)), Vec::new());
    store.commit([uid("b")].into_iter(), &[(uid("a"), trim)]).unwrap();
    assert!(store.bytes() < bytes);
    let bytes = store.bytes();
    drop(store);
    let Opened { mut store, servers, .. } = Store::open(folder.path(), now()).unwrap();
    assert_eq!((servers, store.bytes()), (vec![uid("a"), uid("ab")], bytes));
    let record = store.record(&uid("a")).unwrap().unwrap();
    assert_eq!((record.last, record.changes), (Sequence(3), draft(3).puts[2..].to_vec()));
    assert_eq!(store.record(&uid("ab")).unwrap().unwrap().changes, draft(2).puts);
    assert_eq!(store.record(&uid("b")).unwrap(), None);
    let mut rewrite = draft(1);
    rewrite.is_rewrite = true;
    store.commit(std::iter::empty(), &[(uid("ab"), rewrite)]).unwrap();
    let record = store.record(&uid("ab")).unwrap().unwrap();
    assert_eq!((record.last, record.changes.len()), (Sequence(1), 1));
}

#[test]
fn a_file_of_another_format_or_with_what_nobody_can_read_is_set_aside() {
    type Alter = fn(&Database);
    let cases: [(&str, Alter, &str); 3] = [
        (
            "a later format",
            |database| {
                let transaction = database.begin_write().unwrap();
                transaction.open_table(ABOUT).unwrap().insert(ABOUT_FORMAT, FORMAT + 1).unwrap();
                transaction.commit().unwrap();
            },
            "journal.redb.other-format-2026-01-02T03-04-05.000Z",
        ),
        (
            "a change of another kind",
            |database| {
                let transaction = database.begin_write().unwrap();
                let value = br#"{"change":"Dance"}"#.as_slice();
                transaction.open_table(CHANGES).unwrap().insert(("a", 1), value).unwrap();
                transaction.commit().unwrap();
            },
            "journal.redb.corrupt-2026-01-02T03-04-05.000Z",
        ),
        (
            "tables of another kind",
            |database| {
                let transaction = database.begin_write().unwrap();
                transaction.delete_table(LAST).unwrap();
                let other: TableDefinition<'_, u64, u64> = TableDefinition::new("last");
                transaction.open_table(other).unwrap();
                transaction.commit().unwrap();
            },
            "journal.redb.corrupt-2026-01-02T03-04-05.000Z",
        ),
    ];
    for (name, alter, aside) in cases {
        let folder = tempfile::tempdir().unwrap();
        drop(Store::open(folder.path(), now()).unwrap());
        let database = Database::open(folder.path().join(FILE)).unwrap();
        alter(&database);
        drop(database);
        let opened = Store::open(folder.path(), now()).unwrap();
        assert!(opened.was_set_aside && opened.store.is_lost(), "{name}");
        assert_eq!(names(folder.path()), [FILE, aside], "{name}");
        drop(opened);
        let opened = Store::open(folder.path(), now()).unwrap();
        assert!(!opened.was_set_aside && opened.store.is_lost(), "{name}: a loss is remembered");
    }
}

#[test]
fn few_files_are_kept_aside() {
    let folder = tempfile::tempdir().unwrap();
    for second in 1..=6 {
        fs::write(folder.path().join(FILE), "nonsense").unwrap();
        let opened = Store::open(folder.path(), Timestamp::from_second(second).unwrap()).unwrap();
        assert!(opened.was_set_aside);
    }
    let names = names(folder.path());
    assert_eq!(names.len(), 1 + MOST_ASIDE, "{names:?}");
    assert_eq!(names[1], "journal.redb.corrupt-1970-01-01T00-00-03.000Z");
}

#[test]
fn an_empty_file_is_begun_anew_as_one_that_was_lost() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join(FILE), "").unwrap();
    assert!(Store::open(folder.path(), now()).unwrap().store.is_lost());
}

#[test]
fn what_stands_in_the_way_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let held = Store::open(folder.path(), now()).unwrap();
    assert!(matches!(Store::open(folder.path(), now()), Err(JournalError::Held { .. })));
    drop(held);
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(matches!(Store::open(&file.join("sdk"), now()), Err(JournalError::Folder { .. })));
    fs::create_dir_all(folder.path().join("folder").join(FILE)).unwrap();
    let opened = Store::open(&folder.path().join("folder"), now());
    assert!(matches!(opened, Err(JournalError::Open { .. })), "{:?}", opened.err());
}
