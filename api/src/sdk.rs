//! The SDK protocol as Rust types: what games speak with `berth-sdk`.
//!
//! Everything below is generated from `proto/` by `cargo run -p berth-api --features generate --bin generate`
//! and checked in; nobody edits it by hand. A 64-bit wrapper in a message is an `Option<i64>` here.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    reason = "generated code follows the protocol, not our style"
)]

/// Package `agones.dev.sdk`: state, health, metadata, watching.
pub mod v1 {
    include!("generated/agones.dev.sdk.rs");
}

/// Package `agones.dev.sdk.beta`: counters and lists.
pub mod beta {
    include!("generated/agones.dev.sdk.beta.rs");
}

/// Package `agones.dev.sdk.alpha`: player tracking.
pub mod alpha {
    include!("generated/agones.dev.sdk.alpha.rs");
}
