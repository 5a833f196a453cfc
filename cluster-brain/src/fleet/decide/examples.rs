//! The worked examples of `docs/fleets.md` are what is decided, and its diagram is that of the states.

use std::fs;
use std::path::Path;

use super::tests::run;
use super::{Aim, Step, Strategy};

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)).expect(path)
}

fn step(text: &str) -> Step {
    Step::read_text(text.trim()).expect("a step")
}

fn strategy(text: &str) -> Strategy {
    match text.split_once(',') {
        Some((surge, unavailable)) => {
            Strategy::RollingUpdate { surge: step(surge), unavailable: step(unavailable) }
        }
        None => {
            assert_eq!(text, "Recreate");
            Strategy::Recreate
        }
    }
}

#[test]
fn the_examples_of_updates_are_what_is_decided() {
    let page = read("docs/fleets.md");
    let head = "| replicas | strategy | sessions | update-surge | old/new, turn by turn |\n";
    let (_, table) = page.split_once(head).expect("the table");
    let rows: Vec<&str> = table.lines().skip(1).take_while(|line| line.starts_with('|')).collect();
    assert_eq!(rows.len(), 8);
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let wanted = cells[0].parse().expect("a number");
        let beyond = if cells[3].is_empty() { 0 } else { step(cells[3]).up(wanted) };
        let aim = Aim { wanted, beyond, strategy: strategy(cells[1]) };
        let turns = run(aim, cells[2].parse().expect("a number"));
        let told: Vec<String> = turns.iter().map(|(old, new)| format!("{old}/{new}")).collect();
        assert_eq!(told.join(" "), cells[4], "{row}");
    }
}

#[test]
fn the_diagram_is_that_of_the_states() {
    let (page, states) = (read("docs/fleets.md"), read("api/src/lifecycle.rs"));
    let diagram = |text: &str| {
        let (_, rest) = text.split_once("```text\n").expect("a diagram");
        let (diagram, _) = rest.split_once("```").expect("its end");
        let bare = |line: &str| line.strip_prefix("//! ").unwrap_or(line).trim_end().to_owned();
        diagram.lines().map(bare).filter(|line| line != "//!" && !line.is_empty()).collect::<Vec<_>>()
    };
    let of_states = diagram(&states);
    assert_eq!(diagram(&page), of_states);
    assert!(of_states.len() > 5, "{of_states:?}");
}
