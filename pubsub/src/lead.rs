//! Whether it is this process that polls and publishes: alone, or by the lease.

use berth_runtime::leader::Authority;

/// The right to act.
#[derive(Clone, Debug)]
pub(crate) enum Lead {
    /// There is nobody else.
    Alone,
    /// Whoever holds the lease.
    Elected(Authority),
}

impl Lead {
    /// Whether we may act now.
    pub(crate) fn is_ours(&self) -> bool {
        match self {
            Self::Alone => true,
            Self::Elected(authority) => authority.remaining().is_some(),
        }
    }

    /// Waits until we may act.
    pub(crate) async fn gained(&mut self) {
        match self {
            Self::Alone => {}
            Self::Elected(authority) => authority.gained().await,
        }
    }

    /// Waits until we may not act any more.
    pub(crate) async fn lost(&mut self) {
        match self {
            Self::Alone => std::future::pending().await,
            Self::Elected(authority) => authority.lost().await,
        }
    }
}
