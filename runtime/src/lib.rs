//! What every daemon here needs: telemetry, shutdown, named tasks, backoff, an admin endpoint, metrics, a careful
//! Kubernetes client, the lease of a leader, connections to Redis, and word to systemd.
//!
//! It promises to know nothing about games, and it leaves every decision to the programs that use it.

pub mod admin;
pub mod announce;
pub mod backoff;
pub mod clock;
pub mod error;
pub mod exit;
pub mod health;
pub mod kill_point;
pub mod kube_client;
pub mod leader;
pub mod metrics;
pub mod notify;
pub mod redis_connection;
pub mod redis_url;
pub mod shutdown;
pub mod tasks;
pub mod telemetry;

pub use tokio_util::sync::CancellationToken;
