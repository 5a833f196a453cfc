//! What stories share: applying manifests the way a user does, and reading what came of it.

pub mod resources;
