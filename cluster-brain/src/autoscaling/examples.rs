//! The worked examples of `docs/autoscaling.md` are what is decided.

use std::path::Path;

use berth_api::fleet::CounterSum;
use berth_api::fleet_autoscaler::{AmountPolicy, BufferPolicy};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::amounts::{self, Counted, Seen};
use super::{Desired, buffer};
use crate::stores::Amount;

/// The cells of each row under this head.
fn rows(head: &str) -> Vec<Vec<Vec<String>>> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/autoscaling.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let cells = |line: &str| -> Vec<String> {
        line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    let tables = page.split(head).skip(1);
    let rows = tables
        .map(|table| table.lines().skip(2).take_while(|line| line.starts_with('|')).map(cells).collect());
    rows.collect()
}

fn size(text: &str) -> IntOrString {
    text.parse().map_or_else(|_| IntOrString::String(text.to_owned()), IntOrString::Int)
}

fn told(desired: Desired) -> (String, String) {
    let limit = desired.limit.map(|limit| limit.to_string()).unwrap_or_default();
    (desired.replicas.to_string(), limit)
}

#[test]
fn the_examples_of_buffers_are_what_is_decided() {
    let policies = [("5", 0, 10), ("20%", 1, 100)];
    let tables = rows("| allocated | servers | limit |");
    assert_eq!(tables.len(), policies.len());
    for (table, (text, min_replicas, max_replicas)) in tables.iter().zip(policies) {
        assert!(table.len() >= 3, "{table:?}");
        for row in table {
            let policy = BufferPolicy { max_replicas, min_replicas, buffer_size: size(text) };
            let allocated = row[0].parse().expect("a number");
            let desired = buffer::decide(&policy, allocated).expect("an answer");
            assert_eq!(told(desired), (row[1].clone(), row[2].clone()), "{row:?}");
        }
    }
}

#[test]
fn the_examples_of_counters_are_what_is_decided() {
    let tables = rows("| servers now | each uses | `bufferSize` | capacity | servers | limit |");
    assert_eq!((tables.len(), tables[0].len()), (1, 8));
    for row in &tables[0] {
        let number = |text: &str| text.parse::<i64>().expect("a number");
        let (least, most) = row[3].split_once(" to ").expect("two limits");
        let policy = AmountPolicy {
            key: "rooms".to_owned(),
            buffer_size: size(&row[2]),
            min_capacity: number(least),
            max_capacity: number(most),
        };
        let (servers, each) = (number(&row[0]), Amount { count: number(&row[1]), capacity: 10 });
        let count = usize::try_from(servers).expect("a small number");
        let seen = Seen {
            counted: Counted::Counter,
            replicas: i32::try_from(servers).expect("a small number"),
            fresh: Amount { count: 0, capacity: 10 },
            sum: CounterSum {
                count: servers * each.count,
                capacity: servers * each.capacity,
                ..CounterSum::default()
            },
            servers: vec![Some(each); count],
        };
        let desired = amounts::decide(&policy, &seen).expect("an answer");
        assert_eq!(told(desired), (row[4].clone(), row[5].clone()), "{row:?}");
    }
}
