//! What stories share: a cluster with Berth on real nodes, manifests applied the way a user does, and reading what came
//! of it.

pub mod admin;
pub mod confinement;
pub mod game;
pub mod harbour;
pub mod resources;
pub mod scale;
pub mod sdk_client;
pub mod streams;
pub mod world;
