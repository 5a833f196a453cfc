//! Services under a hand-moved clock, for tests.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use crate::clock::Pace;
use crate::services::{Plan, Services};
use crate::wire::signature::{Credentials, Strictness};
use crate::world::Place;

pub(crate) fn start() -> Timestamp {
    "2026-09-21T12:00:00Z".parse().unwrap()
}

/// An empty account whose signatures are not checked.
pub(crate) fn services() -> Services {
    Services::new(Plan {
        place: Place { region: "eu-central-1".to_owned(), account: "111122223333".to_owned() },
        pace: Pace::Manual,
        origin: Some(start()),
        seed: 7,
        credentials: vec![Credentials {
            access_key: "AKID".to_owned(),
            secret: "secret".to_owned(),
            token: None,
        }],
        strictness: Strictness::Read,
    })
}

pub(crate) fn order(services: &mut Services, order: Value) -> Value {
    services.bring_up();
    let words = order.to_string();
    let order = serde_json::from_value(order).unwrap_or_else(|error| panic!("{words}: {error}"));
    services.world.perform(order).unwrap_or_else(|error| panic!("{words}: {error}"))
}

pub(crate) fn advance(services: &mut Services, by: Duration) {
    services.clock.advance(by);
    services.bring_up();
}
