//! The entrances: the aggregated API, and the allocator service over gRPC and REST.

mod api;
mod authorization;
mod front_proxy;
mod gate;
mod grpc;
mod json;
mod listen;
mod rest;
mod tls;
mod words;

pub use api::ApiService;
pub use authorization::Authorizer;
pub use front_proxy::{FrontProxy, FrontProxyError, read_front_proxy, watch_front_proxy};
pub use gate::Gate;
pub use listen::{Entrance, ListenError, Listener};
pub use rest::AllocatorService;
pub use tls::{Clients, Identity, TlsError, TlsKeeper};
