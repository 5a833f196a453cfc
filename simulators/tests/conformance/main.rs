//! The simulator as real clients see it: AWS's own SDK for Rust (CBOR), its metadata client, and boto3 (JSON and Query).

mod metadata;
mod program;
mod python;
mod rust_sdk;
mod stage;
mod wire;
