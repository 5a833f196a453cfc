//! Manners in which AWS may write the same thing; a client has to cope with all of them.

use serde::{Deserialize, Serialize};

/// How answers are written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct WireStyle {
    pub(crate) error_names: ErrorNames,
    /// JSON errors have their name in a header as well.
    pub(crate) error_header: bool,
    pub(crate) cbor_indefinite: bool,
    pub(crate) cbor_integer_times: bool,
    /// Operations without output answer an empty map in CBOR instead of nothing.
    pub(crate) empty_map_for_nothing: bool,
    /// A Date header that is so far from the time of day. Without it there is none, since clients take their clock from it.
    pub(crate) date_offset_ms: Option<i64>,
}

/// How errors are named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ErrorNames {
    /// Bare in JSON, with the namespace in CBOR.
    #[default]
    ByProtocol,
    Bare,
    Namespaced,
}
