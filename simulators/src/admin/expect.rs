//! Waiting for a condition, for tests in shell.

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Answer, Refused, required, views};
use crate::services::Shared;
use crate::world::Milliseconds;

/// How often it is looked.
const LOOK: Duration = Duration::from_millis(20);
/// No wait is longer.
const LONGEST: Duration = Duration::from_secs(600);

/// A place in `/state`, as a JSON pointer, and what shall be there.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expectation {
    pointer: String,
    equals: Value,
    #[serde(default = "ten_seconds")]
    within_ms: Milliseconds,
}

fn ten_seconds() -> Milliseconds {
    Milliseconds::of_seconds(10)
}

pub(super) async fn expect(State(shared): State<Shared>, body: bytes::Bytes) -> Answer {
    let Expectation { pointer, equals, within_ms } = required(&body)?;
    let deadline = Instant::now() + within_ms.duration().min(LONGEST);
    loop {
        let state = views::state(&mut shared.lock());
        let seen = state.pointer(&pointer).cloned().unwrap_or(Value::Null);
        if seen == equals {
            return Ok(axum::Json(json!({ "seen": seen })));
        }
        if Instant::now() >= deadline {
            let why = format!("{pointer} is {seen}, not {equals}, after {} ms", within_ms.0);
            return Err(Refused::new(StatusCode::CONFLICT, why));
        }
        tokio::time::sleep(LOOK).await;
    }
}
